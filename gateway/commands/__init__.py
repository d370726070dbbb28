"""What people can say with a slash.

contract      what a command is, and what its handler may use
conversation  commands about the conversation itself
people        commands about who is let in
beside        commands about models, costs and what tools ask
operating     commands about the gateway as a whole
registry      the list of all, and the one gate each passes
"""
