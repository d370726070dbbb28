import asyncio
import os
from pathlib import Path

import pytest

from gateway.operate.setup.owner import Owner, find_owner, wait_for_owner, watch_for_owner
from gateway.process.control_socket import serve_control_socket

ADA = {"principal": "telegram:1001", "name": "Ada", "role": "admin"}
BOB = {"principal": "telegram:1002", "name": "Bob", "role": "member"}


def test_the_owner_is_the_newest_admin() -> None:
    assert find_owner([BOB]) is None
    assert find_owner([ADA, BOB]) == Owner("Ada", "telegram:1001")
    assert str(Owner("Ada", "telegram:1001")) == "Ada (telegram:1001)"


class People:
    """Add an admin at the second look."""

    def __init__(self, *after: dict[str, str]) -> None:
        self.looks = 0
        self.claims = 0
        self.looked_often = asyncio.Event()
        self._after = list(after)

    async def pair_list(self) -> list[dict[str, str]]:
        self.looks += 1
        if self.looks > 2:
            self.looked_often.set()
        return self._after if self.looks > 1 else []

    async def pair_claim(self) -> dict[str, object]:
        self.claims += 1
        return {"code": "ABCD2345", "links": {"telegram": "https://t.me/b?start=ABCD2345"}}


@pytest.mark.quick
async def test_waiting_inside_the_gateway_ends_with_an_owner_or_its_stop() -> None:
    stopping = asyncio.Event()
    assert await watch_for_owner(People(ADA).pair_list, stopping) == Owner("Ada", "telegram:1001")
    people = People()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(watch_for_owner(people.pair_list, stopping))
        await people.looked_often.wait()
        stopping.set()
    assert waiting.result() is None


async def waited(folder: Path, people: People, *, keys: str | None) -> tuple[Owner | None, str]:
    """Wait beside a running daemon; `keys` is the person's input, None without a person."""
    said: list[str] = []
    there, typed = os.pipe()
    with os.fdopen(there) as source, os.fdopen(typed, "w") as keyboard:
        if keys:
            keyboard.write(keys)
            keyboard.flush()
        operations = {"pair_list": people.pair_list, "pair_claim": people.pair_claim}
        async with serve_control_socket(folder / "s", operations):
            owner = await asyncio.to_thread(
                wait_for_owner,
                folder / "s",
                ("telegram",),
                "holdfast",
                said.append,
                None if keys is None else source,
            )
    return owner, "\n".join(said)


async def test_waiting_beside_a_daemon_prints_the_link_and_greets_the_owner(tmp_path: Path) -> None:
    owner, said = await waited(tmp_path, People(ADA), keys="")
    assert owner == Owner("Ada", "telegram:1001")
    assert "open https://t.me/b?start=ABCD2345 and press Start" in said
    assert said.endswith("✓ You are the owner: Ada (telegram:1001).")


async def test_enter_ends_the_wait(tmp_path: Path) -> None:
    owner, said = await waited(tmp_path, People(), keys="\n")
    assert owner is None
    assert "holdfast pair claim" in said


async def test_without_a_person_the_link_is_printed_without_waiting(tmp_path: Path) -> None:
    people = People()
    owner, said = await waited(tmp_path, people, keys=None)
    assert owner is None
    assert "ABCD2345" in said
    assert people.looks == 1


async def test_with_an_owner_no_code_is_created(tmp_path: Path) -> None:
    people = People(ADA)
    people.looks = 1
    owner, said = await waited(tmp_path, people, keys="")
    assert owner
    assert said == "The owner is Ada (telegram:1001)."
    assert people.claims == 0
