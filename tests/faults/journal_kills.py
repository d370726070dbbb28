"""Kills the daemon at chosen and at random points of a turn, and checks that nothing is done twice.

`python -m tests.faults.journal_kills --kills 20 --seed 1` is the long form of the random ones; a
short one, and the chosen points, run with the tests.
"""

import argparse
import asyncio
import contextlib
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

from sessions.records import Message
from tests.e2e.daemon import Daemon, Page, Row, answers, notices
from tests.e2e.house import opened
from tests.fakes import bank
from tests.fakes.cooperative import Answer, Call, pieces_of, rest_of, script_of
from tests.fakes.dialects.requests import Asked, read_request
from tests.fakes.histories import check_history
from tests.fakes.model_script import Hang, Head, Script, Wait, text
from tests.fakes.model_server import ModelServer

Mode = Literal["resume", "suspend"]
MODES: tuple[Mode, ...] = ("resume", "suspend")

CHAT = "chat-1"
KEY = f"web:{CHAT}"
TOLD = "I was restarted while working on"
PATIENCE = 15.0

STORY = "abc, and then the rest of it."
BEGUN = "Paying now."
PAID = "All is paid."
UNSURE = "I do not know whether all was paid."


class Model:
    """Pays what it is asked to, once each; looks at the results, and goes on where it was cut.

    `meanwhile` is called with each request, before it is answered; where it gives a script, that is
    the answer.
    """

    def __init__(self, meanwhile: "Callable[[Asked], Script | None] | None" = None) -> None:
        self._meanwhile = meanwhile
        self.insists = False  # asks again for what may have been paid

    def __call__(self, body: dict[str, Any]) -> Script:
        asked = read_request("chat", _encoded(body))
        script = self._meanwhile(asked) if self._meanwhile else None
        return script or self._answer(asked)

    def _answer(self, asked: Asked) -> Script:
        request = asked.messages[0]["content"]
        if request.startswith("tell"):
            return script_of(_rest_of_story(asked), pieces_of(5))
        results = results_in(asked)
        last = _last_results(asked)
        wanted = [int(number) for number in re.findall(r"\d+", request.partition("\n")[0])]
        missing = [n for n in wanted if not self._settled(results.get(n, []))]
        if missing:
            calls = tuple(
                Call(f"c{len(asked.messages)}_{n}", "pay", f'{{"amount": {n}}}') for n in missing
            )
            begins = not results and not last
            return script_of(Answer(BEGUN if begins else "", calls=calls), pieces_of(5))
        unsure = any(each.startswith("UNKNOWN") for n in wanted for each in results[n])
        return script_of(Answer(UNSURE if unsure else PAID), pieces_of(5))

    def _settled(self, results: list[str]) -> bool:
        if self.insists and len(results) == 1 and results[0].startswith("UNKNOWN"):
            return False
        return any(not each.startswith("Not run") for each in results)


def _encoded(body: dict[str, Any]) -> bytes:
    import msgspec  # noqa: PLC0415 - placed at the top below

    return msgspec.json.encode(body)


def results_in(asked: Asked) -> dict[int, list[str]]:
    """What the model was told of each amount, in order."""
    amounts = {
        call["id"]: int(re.findall(r"\d+", call["arguments"])[0])
        for each in asked.messages
        for call in each["tool_calls"]
    }
    found: dict[int, list[str]] = {}
    for each in asked.messages:
        if each["role"] == "tool":
            found.setdefault(amounts[each["tool_call_id"]], []).append(each["content"])
    return found
