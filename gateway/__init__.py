"""The daemon: the only place that knows sessions, platforms and the agent.

runner      what exists, started and stopped in which order
cli, config, service, doctor, setup
            what the operator meets; to_come: keys that this version refuses
inbound, routing, access, pairing
            from a message to a conversation, and who may
commands    what people can say with a slash
attachments fetches what people attach; received: its names and places, clearing: its end;
            hearing, transcription: speech becomes words
turns       prepares turns; work: one under way; answer: what one leaves; wreckage: after a crash
progress, reasoning
            the status line, and what the model thinks, as the chat shows them
approvals   asks people about risky calls; entitlement: who may answer; question: its words
models      which models answer where; choices: what people chose, model_names: what they meant
asides      /model, /usage, /compact, /btw: side_turn, shorten and usage do the work
hands, desk what the owner of a conversation can do; what commands and buttons lead to
notices, announcer, operators, alarms, vigil
            every sentence of ours that a chat shows; what the admins are told
delivery    from events to what the chat shows: view, pacing, outbox, stream
schedule    messages that time sends
observe     logs, metrics, traces of a message's way; figures: the page /metrics
api_key     the key of the API where none is configured; disk: how much room is left,
            loopback: which addresses only this machine reaches
api         programs that speak OpenAI's API: requests in, a turn followed live; wishes: what else
            they want; feeds, news: what a turn tells whoever waits for it
http        webhooks, health, metrics, the page
"""
