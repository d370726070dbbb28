"""The daemon: the only place that knows sessions, platforms and the agent.

runner      what exists, started and stopped in which order; adapters: those of all platforms;
            supervision: one of them, kept alive
cli, service
            what the operator meets; terminal: `holdfast chat`
settings    what can be configured; config: read from files and elsewhere, in the modules config_*
            and toml_lines; to_come: keys that this version refuses; nearest: what was meant
ending      how the program ends when something is wrong; errors: what may be; lock: one daemon on
            one state folder; notify: systemd is told how it is
reload      reads the configuration anew while all runs; reloading: what of it can change then
control     how the command line reaches a running daemon; operations: what it can ask
inbound, routing, access, people, pairing
            from a message to a conversation, and who may; limits: how often; steady: how old
            something is; messages: stored ones as the model reads them; receipts: the signs on them; archive: what adapters read back
commands    what people can say with a slash
attachments fetches what people attach; received: its names and places, clearing: its end;
            hearing, transcription: speech becomes words
parcels     files that the agent sends
turns       prepares turns; turn_setting: what they run with; work: one under way; live_answer: what
            the chat sees of it; answer: what one leaves; attempts: what its requests cost;
            wreckage: after a crash
progress, reasoning
            the status line, and what the model thinks, as the chat shows them
approvals   asks people about risky calls; entitlement: who may answer; question: its words
models      which models answer where; choices: what people chose, model_names: what they meant
asides      /model, /usage, /compact, /btw: side_turn, shorten and usage do the work
hands, desk what the owner of a conversation can do; what commands and buttons lead to
notices, announcer, operators, alarms, vigil
            every sentence of ours that a chat shows; what the admins are told
delivery    from items to what the chat shows
observe     logs and metrics; figures: the page /metrics
api_key     the key of the API where none is configured; disk: how much room is left;
            loopback: which addresses only this machine reaches
api         programs that speak OpenAI's API: requests in, a turn followed live; wishes: what else
            they want; feeds, news: what a turn tells whoever waits for it
selftest    `holdfast selftest`: the daemon as a process of its own, while things break
http        webhooks, health, metrics, the page
"""
