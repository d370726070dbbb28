"""Conversations and their durable state. Imports no other package of this repository.

values        small pure types for every package: clock, secret, ids, sizes
key, records  the conversation key; frozen records of everything the store holds
changes       every change the store can make, as data
attached      files that came with messages
conversation  state machine, actor and pool: one mailbox and one turn at a time per conversation
store         the database: journal, queries, migrations, copies, maintenance
errors, settings  store errors sorted by what the caller does; configuration of both parts
"""
