"""The daemon: the only package that knows sessions, platforms and the agent.

runner          composition root: builds all parts, and starts and stops them in order
conversations   the parts that serve conversations; retention deletes old sessions
settings, errors
                configuration as types; errors that end the program

From a message to its answer:
connections     platform adapters, each supervised and restarted
inbound         a received message becomes a stored row of one conversation
access          who may talk to the agent, and with which role
commands        slash commands and buttons
turns           turns of the agent, and their answers as the chat sees them
approvals       approval requests before risky tool calls
mcp             MCP servers in chats: prompts as commands, /mcp with logins
side_requests   /model, /usage, /compact and /btw
media           files in both directions, and speech
spending        budgets and prices
notices         every message of Holdfast itself
delivery        from stored items to messages in a chat

Around them:
http            the HTTP port: API, health, metrics, the web page
process         start, lock, signals, restart, control socket, systemd
config          reading, checking and reloading the configuration
alerts          notices to the admins
observe         logs and metrics
operate         everything that only an operator runs: command line, setup, doctor, backup
"""
