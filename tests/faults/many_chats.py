"""Many answers at once on all three platforms, in real time, from one daemon.

Everybody asks at the same moment, apart from each other and then in one group's topics and one
channel's threads, some rounds of each. The platforms' servers enforce the documented limits and
count how much of them live updates use. `make many-chats` runs it; it fails on any 429, on an
answer that is not whole or is shown twice, and where less than 70 % was used.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.e2e.all_platforms import daemon_in, three_platforms
from tests.e2e.chat_users import ChatUsers, Speaker, all_speak
from tests.fakes.allowance import Share
from tests.fakes.model_server import ModelServer

LEAST = 0.7
PATIENCE = 300.0


def numbers(platform: int, round_: int) -> int:
    """The first of the questions' numbers."""
    return platform * 100_000 + round_ * 1_000


async def play(size: int, seconds: float, rounds: int, *, together: bool) -> dict[str, Share]:
    """Let everybody ask, round after round."""
    speaker = Speaker(seconds)
    shares: dict[str, Share] = {}
    with tempfile.TemporaryDirectory() as home:
        async with three_platforms(size, together=together) as place, ModelServer(speaker) as model:
            async with daemon_in(place, Path(home), model) as daemon:
                for round_ in range(rounds):
                    async with asyncio.TaskGroup() as group:
                        asked = {
                            name: group.create_task(
                                all_speak(people, speaker, size, PATIENCE, numbers(at, round_))
                            )
                            for at, (name, people) in enumerate(place.people.items())
                        }
                    shares = {name: task.result() for name, task in asked.items()}
                await asyncio.sleep(2.0)  # a last edit, and the signs
                await daemon.stop()
            for at, people in enumerate(place.people.values()):
                check(people, speaker, size, [numbers(at, each) for each in range(rounds)])
    return shares


def check(people: ChatUsers, speaker: Speaker, size: int, firsts: list[int]) -> None:
    """Everybody has every answer, whole and once."""
    for number in range(size):
        wanted = [speaker.answer(first + number) for first in firsts]
        shown = people.shown(number)
        assert shown == wanted, f"{people.platform}, {number}: {shown}"


async def run(size: int, seconds: float, rounds: int) -> bool:
    """Do both, and print what came of it."""
    fine = True
    for together in (False, True):
        shares = await play(size, seconds, rounds, together=together)
        for name, share in shares.items():
            well = share.refused == 0 and share.used_part >= LEAST
            fine = fine and well
            sys.stdout.write(
                f"{name:<9} {'one room' if together else 'apart':<9} "
                f"granted {share.granted:7.1f}  used {share.used:5d} = {share.used_part:4.0%}  "
                f"429s {share.refused}  {'ok' if well else 'NOT OK'}\n"
            )
            sys.stdout.flush()
    return fine


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=20, help="people on each platform")
    parser.add_argument("--seconds", type=float, default=60.0, help="that an answer takes")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    sys.exit(0 if asyncio.run(run(given.size, given.seconds, given.rounds)) else 1)


if __name__ == "__main__":
    main()
