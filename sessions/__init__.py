"""Conversations and everything that must survive: imports nothing else of ours.

values      small pure types anybody may use: clock, secret, ids
key         which conversation a message belongs to
machine     events in, effects out: start, cancel, suspend, refuse, defer, close
actor, pool one conversation, one mailbox, one turn at a time; and all of them, with the drain
store       the one door to the database; schema and migrations beside it
journal     inbox, turns, tool runs, outbox
expiry      when a conversation starts anew by itself
"""
