"""Which conversations stay in memory."""

import asyncio

from sessions.conversation.actor import ActorServices
from sessions.conversation.events import StartWaiting
from sessions.conversation.expiry import ExpiryPolicy
from sessions.conversation.pool import SessionPool
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids
from tests.unit.sessions.test_actor import Witness, store

__all__ = ["store"]


async def test_the_longest_unused_are_let_go_but_none_that_is_at_work(store: SessionStore) -> None:
    clock = SystemClock()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        shared = ActorServices(
            store=store,
            host=Witness(),
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
        rush = {f"chat:{number}": loop.create_future() for number in range(100)}
        for key, handled in rush.items():
            pool.post(key, StartWaiting(), handled)
        assert set(pool._actors) == set(rush)  # each has something to do
        states = [await handled for handled in rush.values()]
        assert [state.key for state in states] == list(rush)
        for number in range(8):  # some more are let go with each new one
            await pool.ask(f"web:{number}", StartWaiting())
        assert list(pool._actors) == ["web:5", "web:6", "web:7"]
