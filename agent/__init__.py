"""One turn of the agent: from a conversation to a stream of events.

loop, attempt   the shells: steps of a turn, one request to the model
events          what a turn says about itself while it runs
accumulate, verdict, watchdog, continuation, seam, fallback, context, spend, prompt
                the decisions, pure, one per module
providers       one module per model protocol, behind one contract
tools           what the agent can do, one family per file, behind one gate
"""
