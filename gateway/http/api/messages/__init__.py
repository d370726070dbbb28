"""Anthropic's API (`/v1/messages`), on the same core as the endpoints for OpenAI's clients.

body        decoder; `shapes` holds the wire types
form        encoder of an answer, as events or whole
counting    the estimate of `/v1/messages/count_tokens`
routes      the endpoints

Errors are converted by `gateway.http.messages_errors`.
"""
