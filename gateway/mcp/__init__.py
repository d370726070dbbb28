"""MCP servers in chats.

prompts   prompts of servers as commands, whose texts become messages
"""
