"""Small value types for every package.

address              the place where a conversation is shown, and its stored text
clock, steady_clock  time as an argument; ages that survive a change of the machine's clock
ids                  sortable ids and deterministic ids
item_ids             ids of outbox items and of the ops that show them
secret               values that never appear in output
masks                placeholders for secrets in texts that are written back
duration, size       spans of time and byte counts, as written in a configuration
entry_points         plugins of installed distributions
finding              results of checks: ok, warn, fail
notices              ids of notices, stored and sent to API clients
loopback, unreached  network addresses of this machine; reasons of network errors
spelling             suggestions for misspelt words
text, exceptions     shortened texts, times and spans for people; exceptions in words
"""
