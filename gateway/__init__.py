"""The daemon: the only place that knows sessions, platforms and the agent.

runner      what exists, started and stopped in which order
cli, config, service, doctor, setup
            what the operator meets
inbound, routing, access, pairing, approvals
            from a message to a conversation, and who may
commands    what people can say with a slash
turns       runs the agent for a conversation; answer: what one leaves; wreckage: after a crash
hands, desk what the owner of a conversation can do; what commands and buttons lead to
notices, announcer
            every sentence of ours that a chat shows
delivery    from events to what the chat shows: view, pacing, outbox, stream
schedule    messages that time sends
http        API, webhooks, health, metrics, the page
observe     logs, metrics, traces of a message's way
"""
