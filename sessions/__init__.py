"""Conversations and everything that must survive: imports nothing else of ours.

values      small pure types anybody may use: clock, secret, ids
key         which conversation a message belongs to
events      a conversation's state, what happens to it, what follows
machine     events in, changes and acts out: start, cancel, suspend, refuse, defer, close
actor, pool one conversation, one mailbox, one turn at a time; and all of them, with the drain
attached    files that came with messages
changes     what can become true in the store, as data; records: what it holds
store       the one door to the database
journal     writes changes; queries: reads; statements, schema, migrations: what both are made of
database    the threads that talk to it; engine: how it is opened and what its errors mean;
            opening: made and brought up to date at start; courtesy: when the loop never rests;
            commits: what became of one whose answer was lost; examination: from outside
safekeeping a copy before the tables change; copying: a database whole, into a file and out of it;
            restored: what of a copy is over by now; compaction: room given back to the disk
forgetting  what is not to be kept any more; soundness: whether everything is as it must be
expiry      when a conversation starts anew by itself; settings: what can be configured
"""
