"""Providers for OpenAI and OpenAI-compatible services.

chat, responses             the provider for each protocol
chat_wire, responses_wire   pure: request bodies and event parsing of each protocol
odd_forms, pictures         pure: values with several encodings; pictures in requests
service                     the base class of both providers: requests, options, responses
clients                     clients of the official SDK, and the mapping of its exceptions
"""
