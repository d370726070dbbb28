"""Services that speak Anthropic's Messages protocol, Anthropic's own and compatible ones.

dialect     pure: what a model takes, by its name, and what to leave out once it was refused
request     pure: our request as the protocol has it
wire        pure: its events as our chunks
refusals    pure: what its errors mean for us
clients     the official SDK: connections, and its exceptions in our words
messages    the provider
"""
