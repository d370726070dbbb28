"""Configuration of MCP servers by commands: adding one, importing those of other programs.

client_json   servers in the JSON files of other clients (`mcpServers`)
login_page    the login at a server, with a browser and a redirect to this machine
drafts        servers as tables of the configuration, with secrets in files
"""
