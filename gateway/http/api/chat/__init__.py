"""OpenAI's `/v1/chat/completions`.

body        decoder of requests; `shapes` holds the wire types
form        encoder of an answer, as events or whole
completions codec of the older `/v1/completions`
"""
