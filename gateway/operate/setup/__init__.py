"""The set-up behind `holdfast setup`: from a bot token and a model key to a running gateway.

wizard         the order of the questions, and writing the result
asking         Sans-IO: questions, the `Prompter` protocol, yes/no, lists and amounts
terminal       a prompter for a person; flags: a prompter for the command line
bots           questions about platforms and their tokens
model          questions about the model; services: Sans-IO: services by key and URL
local_servers  model servers on this machine
checks         live checks of tokens, keys and servers
budget         the question about the daily limit
mcp_servers    the question about well-known MCP servers
mcp_tables     Sans-IO: servers as tables of the configuration, with secrets in files
draft          Sans-IO: edits the configuration and keeps comments
places         path and mode of the configuration; files: writes all files or none
owner          waits for the claim of the owner
start          starts the service, or the gateway in this terminal
"""
