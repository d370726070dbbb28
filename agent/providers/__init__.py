"""Model providers: request conversion, response parsing and connections.

openai, anthropic, demo  the providers, which share only the modules below
registry                 installed providers and how to build one from the configuration
contract                 the `Provider` protocol and its chunks, for code outside this project
classify, too_long       error responses mapped to `agent.errors`
schemas                  tool schemas for services with limited schema support
transport                HTTP clients, connections and event streams
"""
