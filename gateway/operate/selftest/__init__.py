"""`holdfast selftest`: this very program, on this very machine, while things break.

trials        what is tried, and what must come of it
stage         the daemon as a process of its own, on a state folder that is thrown away
chat_service  a chat service like Telegram; model_service: a model, both small, both ours
plain_http    what these two are served with

Nothing leaves the machine, and nothing of the installation's own state or configuration is used.
"""
