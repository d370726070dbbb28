"""The provider for Anthropic's Messages API and compatible services.

messages    the provider
dialect     pure: features of each model, and simpler variants after an error
request     pure: request bodies
wire        pure: event parsing
refusals    pure: classification of errors
clients     clients of the official SDK, and the mapping of its exceptions
"""
