"""Slash commands.

contract      records of a command and its call, and the services that handlers use
registry      all commands, the check of roles, and the help text
dispatch      runs stored commands and buttons, and sends their replies
conversation  commands about the conversation: /new, /stop, /status, ...
people        commands about access: /start, /whoami, /pair
access_requests  gives and revokes access, and greets people without access
lost_access   decides whose work stops after a change of access
enforcement   stops the work of people who lost access
system        commands about models, costs, approvals and the gateway
"""
