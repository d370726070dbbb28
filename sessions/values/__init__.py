"""Small value types for every package.

clock, steady_clock  time as an argument; ages that survive a change of the machine's clock
ids                  sortable ids and deterministic ids
secret               values that never appear in output
duration, size       spans of time and byte counts, as written in a configuration
finding              results of checks: ok, warn, fail
notices              ids of notices, stored and sent to API clients
loopback, unreached  network addresses of this machine; reasons of network errors
spelling             suggestions for misspelt words
"""
