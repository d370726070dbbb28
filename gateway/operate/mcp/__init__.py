"""MCP servers by commands: importing those of other programs, and logins.

client_json   servers in the JSON files of other clients (`mcpServers`)
login_page    the login at a server, with a browser and a redirect to this machine
"""
