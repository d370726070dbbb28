"""Services that speak OpenAI's protocols, OpenAI's own and the many compatible ones.

chat_wire, responses_wire   pure: our requests and chunks as each protocol has them
odd_forms                   pure: values that services write in more forms than one
clients                     the official SDK: connections, and its exceptions in our words
service                     how a request is posted and its answer read
chat, responses             the provider for each protocol
"""
