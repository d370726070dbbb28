"""The trace of one message in plain words, for `holdfast why`; all modules are Sans-IO.

    facts     the collected data of a message, and text helpers
    story     the timeline: events with their times
    standing  the current state, and the event that will change the state
    shown     the same for an answer that is not delivered yet
    chats     the summary of a chat, and the answer for unknown ids

Every state and decision has a text; a test covers all of them.
"""
