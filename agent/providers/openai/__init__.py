"""Services that speak OpenAI's protocols, OpenAI's own and the many compatible ones.

chat_wire   pure: our requests and chunks as Chat Completions has them
classify    pure: what a refusal of the service means for us
clients     the official SDK: connections, and its exceptions in our words
chat        the provider for Chat Completions
"""
