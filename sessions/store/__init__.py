"""The database behind `SessionStore`.

store, journal  public interface; the writing half, with `statements` and `queries` below both
database        the threads that run SQL; engine: URLs, connections, errors
schema          tables; migrations: steps between versions; prepare: create or migrate at start
copy, safety_copy, after_restore   whole copies, copies before a migration, restored copies
forgetting, vacuum, soundness, inspect   retention, free space, consistency checks
commit_probe, thread_yield   commits without an answer; threads starved by the event loop
"""

from sessions.store.store import SessionStore

__all__ = ["SessionStore"]
