"""MCP servers in chats.

prompts   prompts of servers as commands, whose texts become messages
messages  replaces a stored command by a message
logins    `/mcp`: logins by a link in a private chat, and the state of the servers
redirect  the end of a login: a redirect to this machine, or its address as pasted text
"""
