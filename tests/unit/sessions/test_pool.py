"""Eviction of idle actors."""

import asyncio

from sessions.conversation.actor import ActorServices
from sessions.conversation.events import StartWaiting
from sessions.conversation.expiry import ExpiryPolicy
from sessions.conversation.pool import SessionPool
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids
from tests.unit.sessions.test_actor import RecordingHost, store

__all__ = ["store"]


async def test_the_least_recently_used_idle_actors_are_evicted(store: SessionStore) -> None:
    clock = SystemClock()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        shared = ActorServices(
            store=store,
            host=RecordingHost(),
            clock=clock,
            ids=Ids(clock),
            expiry_policy=ExpiryPolicy,
            queue_limit=lambda: 20,
            tasks=tasks,
        )
        pool = SessionPool(shared, max_actors=3)
        for number in range(5):
            await pool.ask(f"web:{number}", StartWaiting())
        assert list(pool._actors) == ["web:2", "web:3", "web:4"]
        loop = asyncio.get_running_loop()
        busy = {f"chat:{number}": loop.create_future() for number in range(100)}
        for key, handled in busy.items():
            pool.post(key, StartWaiting(), handled)
        assert set(pool._actors) == set(busy)  # all are busy
        states = [await handled for handled in busy.values()]
        assert [state.key for state in states] == list(busy)
        for number in range(8):  # each new actor evicts a few more
            await pool.ask(f"web:{number}", StartWaiting())
        assert list(pool._actors) == ["web:5", "web:6", "web:7"]
