"""One conversation at a time: decisions, execution and the pool.

machine     the pure state machine: event in, changes and effects out
transition  the outcome of one step, and the operations that build it
events      state, events and effects of a conversation
actor       owner of one conversation: applies events, commits changes, runs the turn
pool        all actors in memory, recovery at start, drain at shutdown
expiry      the reset policy
"""
