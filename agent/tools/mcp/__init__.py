"""Tools of servers that speak the Model Context Protocol.

servers     all configured servers, and the tools they have at this moment
link        one server: connected, lost, connected again; its calls
names       under which name each tool joins the others
shown       what of a tool the model is shown
contract    what `link` needs of a connection

These take a while to import, and are imported only when a server is configured:
session     one connection, by the official package
transports  a program's pipes, or requests over HTTP
results     what a call came to, as text
arguments   are they what the tool's schema asks for?
"""
