"""Inbound events: from a platform's event to the conversation that answers it.

reception        decides about, stores and passes on events
routing          Sans-IO: session keys, routes and command parsing
decisions        Sans-IO: the decisions stored in inbox rows
reader           Sans-IO: stored events as messages for a turn
request_options  Sans-IO: options of requests over HTTP
rate_limit       Sans-IO: messages per minute and person
reactions        Sans-IO: the reactions that show the progress of a message
"""
