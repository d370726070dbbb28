"""Approval requests: people allow or deny a risky tool call before it runs.

broker    asks, waits, records answers, closes old requests
questions questions of running tools, stored as approval requests
rules     who may answer a request, and which request an answer means
wording   how a request looks in a chat, and the reason that the model reads
"""
