"""The table is measured right: everything that was said was answered once, by both programs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.operate.selftest.plain_http import serve
from tests.bench.chat_service import TOKEN, ChatService
from tests.bench.contestants import Cores, Floor, Ours, entered
from tests.bench.measures import Bench, Sizes, kills, new_chats, paced, saturation, streaming
from tests.bench.orders import Talk, Talked
from tests.bench.verdicts import Goal, Row, compared, written

TINY = Sizes(
    rounds=1,
    turns=20,
    at_once=4,
    new_chats=10,
    streams=4,
    tokens=20,
    paced_seconds=1,
    paced_turns=2,
    killed=3,
    killed_after=0.5,
    down=2,
    patience=2.0,
)


@pytest.mark.timeout(150)
async def test_both_programs_answer_everybody_once_while_they_are_measured(tmp_path: Path) -> None:
    cores = Cores()
    async with entered(Ours(), tmp_path, cores) as ours, entered(Floor(), tmp_path, cores) as floor:
        bench = Bench(ours, floor, TINY)
        for contestant in (ours, floor):
            assert 0 < await contestant.start() < 30
            assert contestant.used().memory > 10
        before = ours.used().cpu, floor.used().cpu
        rows: list[Row] = []
        for measure in (saturation, new_chats, streaming, paced):
            rows += await measure(bench)
        assert bench.faults == []
        assert (ours.used().cpu, floor.used().cpu) > before
        assert all(row.floor is not None and row.ours >= 0 for row in rows)
        killed, down = await kills(bench)
        assert (killed.ours, killed.floor) == (0, TINY.killed)
        assert (down.ours, down.floor) == (0, 0)


# --- what the chat service sees ----------------------------------------------------------------

CHAT = 7


class Program:
    """One that answers as it is told to."""

    def __init__(self, client: aiohttp.ClientSession, service: ChatService, url: str) -> None:
        self.service = service
        self._client = client
        self._url = url

    async def call(self, method: str, **given: str | int) -> int:
        async with self._client.post(f"{self._url}/bot{TOKEN}/{method}", data=given) as answer:
            await answer.read()
            return answer.status

    async def asked(self) -> int:
        """Wait for a message; gives its number."""
        url = f"{self._url}/bot{TOKEN}/getUpdates?timeout=5"
        async with self._client.get(url) as answer:
            update, *_ = (await answer.json())["result"]
        number: int = update["update_id"]
        return number


@contextlib.asynccontextmanager
async def program() -> AsyncIterator[Program]:
    service = ChatService()
    async with serve(service.asked) as port, aiohttp.ClientSession() as client:
        yield Program(client, service, f"http://127.0.0.1:{port}")


async def talked(its: Program, *calls: tuple[str, str], edits_apart: float = 0.0) -> Talked:
    """Have one message answered by these calls; `%` stands for the end of the answer."""
    talk = Talk(CHAT, 1, 1, 1, seconds=0.5, edits_apart=edits_apart)
    async with asyncio.TaskGroup() as group:
        talking = group.create_task(its.service.obey(talk))
        number = await its.asked()
        for method, text in calls:
            said = text.replace("%", f"whole-t{number}.")
            await its.call(method, chat_id=CHAT, text=said, draft_id=1, message_id=5)
    report = talking.result()
    assert isinstance(report, Talked)
    return report


async def test_a_message_or_an_edit_that_holds_the_end_is_an_answer() -> None:
    async with program() as its:
        for method in ("sendMessage", "editMessageText"):
            report = await talked(its, (method, "It is so. %"))
            assert (report.missing, report.twice, len(report.delays)) == (0, 0, 1)
            await its.call("getUpdates", offset=10**9)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        pytest.param("sendMessageDraft", "It is so. %", id="a draft"),
        pytest.param("sendMessage", "It is", id="half of it"),
        pytest.param("sendMessage", "It is so. whole-t1.", id="the answer to something else"),
    ],
)
async def test_what_is_no_answer_is_not_counted_as_one(method: str, text: str) -> None:
    async with program() as its:
        report = await talked(its, (method, text))
        assert (report.missing, report.delays) == (1, ())


async def test_a_second_message_with_the_same_answer_is_noticed() -> None:
    async with program() as its:
        talk = Talk(CHAT, 1, 2, 2, seconds=0.3)
        async with asyncio.TaskGroup() as group:
            talking = group.create_task(its.service.obey(talk))
            first = await its.asked()
            for _ in range(2):
                await its.call("sendMessage", chat_id=CHAT, text=f"whole-t{first}.")
        report = talking.result()
        assert isinstance(report, Talked)
        assert (report.missing, report.twice) == (1, 1)


async def test_live_updates_that_come_too_soon_are_refused_and_counted() -> None:
    async with program() as its:
        drafts = [("sendMessageDraft", "It"), ("sendMessageDraft", "It is"), ("sendMessage", "%")]
        report = await talked(its, *drafts, edits_apart=30.0)
        assert (report.refused, report.shown_live, report.missing) == (1, 1, 0)
        assert report.odd == ()


@pytest.mark.parametrize(
    ("method", "given", "status"),
    [
        pytest.param("sendMessage", {"text": " "}, 400, id="nothing to send"),
        pytest.param("sendMessage", {"text": "x" * 4097}, 400, id="too long"),
        pytest.param("sendMessageDraft", {"text": "x"}, 400, id="a draft without a number"),
        pytest.param("sendPancake", {}, 404, id="no such method"),
        pytest.param("sendChatAction", {"action": "typing"}, 200, id="typing"),
    ],
)
async def test_what_telegram_would_not_take_is_refused(
    method: str, given: dict[str, str], status: int
) -> None:
    async with program() as its:
        assert await its.call(method, chat_id=CHAT, **given) == status


# --- what is said about it ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "pairs", "met"),
    [
        pytest.param(Goal(1.3), [(1.3, 1.0)], True, id="at most, just"),
        pytest.param(Goal(1.3), [(1.31, 1.0)], False, id="at most, not quite"),
        pytest.param(Goal(0.8, at_least=True), [(4.0, 5.0)], True, id="at least, just"),
        pytest.param(Goal(0.8, at_least=True), [(3.9, 5.0)], False, id="at least, not quite"),
        pytest.param(Goal(100, of="ours"), [(99.0, 1.0)], True, id="our own figure"),
        pytest.param(Goal(1.3), [(9.0, 1.0), (1.0, 1.0), (6.0, 5.0)], True, id="the middle"),
    ],
)
def test_a_goal_is_met_up_to_its_limit(
    goal: Goal, pairs: list[tuple[float, float]], *, met: bool
) -> None:
    row = compared("a thing", "ms", pairs, goal)
    assert row.met is met
    assert ("goal met" if met else "NOT met") in written(row)


def test_a_goal_is_not_met_when_something_else_is_wrong() -> None:
    assert not compared("a thing", "ms", [(1.0, 1.0)], Goal(1.3), besides=False).met
