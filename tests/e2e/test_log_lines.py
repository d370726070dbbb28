"""Log lines of a message and its turn."""

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.observe import log
from gateway.observe.log import OWN_LOGGERS
from gateway.observe.redact import Redactor
from tests.e2e.gateway_kit import gateway
from tests.fakes.model_server import ModelServer, always

CHAT = "7"
ROOT = Path(__file__).parents[2]
FIXED_PLURAL = re.compile(r'^\s*_?(log\.\w+\()?"[^"]*%d (\w+ )?[a-z]+s\b')


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The log as text; afterwards the logging of the test run is restored."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in OWN_LOGGERS}
    log.configure(Redactor(), stream=stream)
    yield stream
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, old in levels.items():
        logging.getLogger(name).setLevel(old)


async def test_a_stopped_turn_has_a_closing_line_with_its_tokens(
    tmp_path: Path, written: io.StringIO
) -> None:
    scripts = ['H T"I look." C(0,c1,look,{}) F tool_calls U(7,100) D', 'H T"so far" HANG']
    async with (
        ModelServer(*scripts) as model,
        gateway(tmp_path, model) as kit,
    ):
        await kit.screen.say(CHAT, "go")
        await kit.screen.shows(CHAT, "so far")
        await kit.screen.say(CHAT, "/stop")
        await kit.screen.shows(CHAT, "⏹ Stopped.")
    (ended,) = (line for line in written.getvalue().splitlines() if "turn stopped after" in line)
    assert " s: stop [" in ended
    assert "platform=memory chat=memory:7 turn=" in ended
    assert "model=openai/scripted tokens=100+7 received=6" in ended


async def test_an_interrupted_turn_is_counted_in_words(
    tmp_path: Path, written: io.StringIO
) -> None:
    async with ModelServer(always('H T"so far" HANG')) as model:
        async with gateway(tmp_path, model) as kit:
            await kit.screen.say(CHAT, "go")
            await kit.screen.shows(CHAT, "so far")
            await kit.crash()
        async with gateway(tmp_path, model) as kit:
            await kit.screen.shows(CHAT, "I was restarted")
    assert "interrupted when the last process ended: 1 turn\n" in written.getvalue()


def test_no_log_line_has_a_fixed_plural() -> None:
    """`%d turns` reads wrong for one; `count_of` knows both forms."""
    sources = [
        file
        for name in ("gateway", "agent", "sessions", "platforms")
        for file in (ROOT / name).rglob("*.py")
    ]
    assert sources
    found = [
        f"{file}: {line.strip()}"
        for file in sources
        for line in file.read_text().splitlines()
        if FIXED_PLURAL.search(line) and "the first of %d models" not in line  # never of one
    ]
    assert found == []


async def test_a_message_and_its_turn_name_place_model_and_tokens(
    tmp_path: Path, written: io.StringIO
) -> None:
    async with (
        ModelServer(always('H T"fine" F stop U(7,100) D')) as model,
        gateway(tmp_path, model) as kit,
    ):
        await kit.screen.say(CHAT, "a secret question")
        await kit.screen.shows(CHAT, "fine")
    lines = written.getvalue().splitlines()
    (received,) = (line for line in lines if "message received" in line)
    assert " info gateway.inbound.reception: message received, 17 characters [" in received
    assert "platform=memory chat=memory:7 inbox=" in received
    (ended,) = (line for line in lines if "turn done after" in line)
    assert "platform=memory chat=memory:7 turn=" in ended
    assert "model=openai/scripted tokens=100+7" in ended
    assert "secret" not in written.getvalue()
