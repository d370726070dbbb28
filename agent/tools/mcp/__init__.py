"""Tools of MCP servers (Model Context Protocol).

servers     all configured servers and their current tools
link        the connection to one server: reconnection and calls
contract    the interface between `link` and a session
memory      what servers said about their tools, and changes that an admin has to accept
stderr      the line of a program's error output that tells why it failed
probe       a trial connection, for `holdfast mcp test` and `holdfast doctor`
names       unique names for the tools of all servers
shown       descriptions and schemas as the model sees them

These modules import slowly, so they are imported only when a server is configured:
session     one session, based on the official package
transports  the transports: a program, Streamable HTTP, and the older HTTP transport
http_client requests over HTTP, whose failures are errors of single calls
sse         the HTTP transport of protocol version 2024-11-05
program     a program and its pipes
package_log a limit on the log lines of the official package
output      files of results in the workspace
resources   the tools that list and read resources
elicitation questions of servers to a person in the chat
login       logins at servers with OAuth, and the stored tokens in requests
login_store the file with a login
held        a context manager that is left in its own task, safe from cancellation
results     results of calls as text
arguments   validation of arguments against the schema of a tool
"""
