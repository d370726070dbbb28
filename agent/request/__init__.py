"""Builds the request that a model receives from a conversation.

prompt            prompts, and the normalization of history rows for a request
file_lines        text lines for attached files; `pictures` selects files to show as pictures
history_plan      selection of rows to summarize when a conversation outgrows the context window
tokens            token estimates without a tokenizer
request_hash      hash that identifies equal requests in the journal
"""
