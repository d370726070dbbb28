"""What the operator can see: logs now; metrics and traces of a message's way have their room here.

log     lines on stderr, with the conversation they belong to
redact  takes secrets out of logs and of what is sent
"""
