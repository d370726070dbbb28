"""One turn of the agent: from a conversation to a stream of events.

loop            the steps of a turn: ask the model, run its tools, until there is an answer
attempt         one request to the model, read under the watchdog
events, errors  what a turn tells, and what can go wrong, sorted by what to do about it
settings        what can be configured
prompt          how a conversation is shown to a model
accumulate      chunks to one answer; `slots` puts tool calls together, `think` finds thinking
verdict         what a request came to; `continuation` decides what to do next
watchdog        how long a model may stay silent
providers       one module or package per model protocol, behind one contract
tools           what the agent can do, one family per file, behind one gate
"""
