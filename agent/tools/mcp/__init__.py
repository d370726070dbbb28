"""Tools of MCP servers (Model Context Protocol).

servers     all configured servers and their current tools
link        the connection to one server: reconnection and calls
contract    the interface between `link` and a session
names       unique names for the tools of all servers
shown       descriptions and schemas as the model sees them

These modules import slowly, so they are imported only when a server is configured:
session     one session, based on the official package
transports  pipes of a program, or requests over HTTP
held        a context manager that is left in its own task, safe from cancellation
results     results of calls as text
arguments   validation of arguments against the schema of a tool
"""
