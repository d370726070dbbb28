"""Notices: messages of Holdfast itself in chats.

catalogue   the text of every notice, and its rendering
compose     outbox items of notices, in the form of each platform
sender      commits and delivers notices outside of turns
"""
