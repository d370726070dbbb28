"""Chat platforms, one adapter each; no adapter knows another.

core                      the contract, its errors, the registry, Markdown and splitting
telegram, discord, slack  adapters of chat services
console, web              the terminal and the web page
"""
