"""Model providers; each is an island that shares only what all of them need.

contract          what a provider is; registry: which there are
sse, body         reads a body, whatever protocol its events speak
classify, too_long
                  what a refusal of a service means for us
schemas           schemas of tools for services that make a grammar of them
connections       the SDKs' clients: pools, TLS, keep-alive, errors in our words
openai, anthropic, demo
                  two conversions (request and answer) and a thin shell each
"""
