"""The context of a model, with and without a summary of the oldest rows."""

import random

import pytest
import sqlalchemy as sa

from sessions.changes import AppendMessages, PutSummary, TakeBackTurn
from sessions.errors import Conflict, RecordNotFound
from sessions.records import Message
from sessions.store import schema
from sessions.store.store import SessionStore
from tests.contract.store_kit import KEY, ended, opened, started, talk


async def seen(store: SessionStore, session: str = "s1") -> tuple[str, list[str]]:
    summary, rows = await store.sessions.context(session)
    return summary, [row.content for row in rows]


def questions(*numbers: int) -> list[str]:
    return [f"question {number}" for number in numbers]


async def test_without_a_summary_a_model_sees_the_history(store: SessionStore) -> None:
    await talk(store, "s1", 3)
    await store.apply(TakeBackTurn("s1", "t_s1_00001", 5000))
    assert await store.sessions.context("s1") == ("", await store.sessions.history("s1"))
    assert await seen(store) == ("", questions(0, 2))
    assert await store.sessions.context("nobody") == ("", ())
    await store.apply(opened("s2", key="web:a"))
    assert await store.sessions.context("s2") == ("", ())


async def test_a_long_history_is_complete_and_in_order(
    store: SessionStore,
) -> None:
    texts = ("plain", 'a "quoted", comma', "line\nbreak \x00 \\ end", "Grüße 🎉 讨论", "]},{[", "")
    for number in range(300):  # two sessions in turn, so that their rows interleave
        for session in ("s1", "s2"):
            if number == 0:
                await store.apply(opened(session, key=f"web:{session}"))
            row = Message("user", f"{session} {number} {texts[number % len(texts)]}")
            await store.apply(AppendMessages(session, "t", (row,), 1000))
    for session in ("s1", "s2"):
        _, rows = await store.sessions.context(session)
        assert rows == await store.sessions.history(session)
        assert [row.content.split()[1] for row in rows] == [str(number) for number in range(300)]


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        pytest.param(2, questions(3, 4), id="some rows"),
        pytest.param(0, [], id="no rows"),
        pytest.param(5, questions(0, 1, 2, 3, 4), id="all rows"),
    ],
)
async def test_a_summary_replaces_the_oldest_rows(
    store: SessionStore, keep: int, left: list[str]
) -> None:
    await talk(store, "s1", 5)
    await talk(store, "s2", 5, key="web:a")
    before, other = await store.sessions.history("s1"), await store.sessions.get("s2")
    await store.apply(PutSummary(session_id="s1", keep=keep, summary="they talked", at=9000))
    assert await seen(store) == ("they talked", left)
    assert await seen(store, "s2") == ("", questions(0, 1, 2, 3, 4))
    assert await store.sessions.history("s1") == before
    session = await store.sessions.get("s1")
    assert session
    assert (session.messages, session.updated_at) == (5, 9000)
    assert await store.sessions.get("s2") == other


async def test_a_summary_with_too_few_rows_changes_nothing(
    store: SessionStore,
) -> None:
    await talk(store, "s1", 5)
    before = await store.sessions.get("s1")
    await store.apply(PutSummary(session_id="s1", keep=6, summary="too early", at=9000))
    assert await seen(store) == ("", questions(0, 1, 2, 3, 4))
    assert await store.sessions.get("s1") == before
    await store.apply(PutSummary(session_id="s1", keep=2, summary="first", at=9000))
    await store.apply(PutSummary(session_id="s1", keep=3, summary="second", at=9500))
    assert await seen(store) == ("first", questions(3, 4))


async def test_the_next_summary_counts_from_the_end_of_the_last_one(store: SessionStore) -> None:
    await talk(store, "s1", 5)
    await store.apply(PutSummary(session_id="s1", keep=3, summary="first", at=9000))
    await store.apply(started("t6", "s1", said="question 5"))
    assert await seen(store) == ("first", questions(2, 3, 4, 5))
    await store.apply(PutSummary(session_id="s1", keep=1, summary="second", at=9500))
    assert await seen(store) == ("second", questions(5))
    await store.apply(PutSummary(session_id="s1", keep=1, summary="shorter", at=9600))
    assert await seen(store) == ("shorter", questions(5))


async def test_retracted_rows_are_neither_seen_nor_counted(store: SessionStore) -> None:
    await talk(store, "s1", 6)
    for number in (1, 4):
        await store.apply(TakeBackTurn("s1", f"t_s1_{number:05d}", 5000))
    await store.apply(PutSummary(session_id="s1", keep=2, summary="they talked", at=9000))
    assert await seen(store) == ("they talked", questions(3, 5))
    await store.apply(TakeBackTurn("s1", "t_s1_00005", 9500))
    assert await seen(store) == ("they talked", questions(3))


async def test_rows_covered_by_a_summary_are_not_read(store: SessionStore) -> None:
    await talk(store, "s1", 5)
    await store.apply(PutSummary(session_id="s1", keep=2, summary="they talked", at=9000))
    oldest = sa.select(schema.messages.c.id).order_by(schema.messages.c.id).limit(3)
    spoilt = (
        sa.update(schema.messages).values(body="no row").where(schema.messages.c.id.in_(oldest))
    )
    assert await store.database.write(lambda c: c.execute(spoilt).rowcount) == 3
    assert await seen(store) == ("they talked", questions(3, 4))


async def test_unstorable_characters_in_a_summary_are_replaced(store: SessionStore) -> None:
    await talk(store, "s1", 1)
    await store.apply(PutSummary(session_id="s1", keep=0, summary="nul \x00 lone \ud800", at=9000))
    assert await seen(store) == ("nul \N{REPLACEMENT CHARACTER} lone ?", [])


async def test_a_missing_session_cannot_be_compacted(store: SessionStore) -> None:
    with pytest.raises(RecordNotFound, match="s9 is not in the database"):
        await store.apply(PutSummary(session_id="s9", keep=0, summary="nothing", at=1))


async def test_a_summary_is_stored_with_its_transaction_or_not_at_all(store: SessionStore) -> None:
    await talk(store, "s1", 3)
    with pytest.raises(Conflict):
        await store.apply(
            PutSummary(session_id="s1", keep=1, summary="they talked", at=9000),
            opened("s2", key=KEY),
        )
    assert await seen(store) == ("", questions(0, 1, 2))


async def test_statements_per_summary_do_not_depend_on_the_covered_rows(
    store: SessionStore,
) -> None:
    await talk(store, "s1", 40)
    counts = store.count_queries()
    await store.apply(PutSummary(session_id="s1", keep=30, summary="a", at=9000))
    few = counts.statements
    await store.apply(PutSummary(session_id="s1", keep=1, summary="b", at=9000))
    assert counts.statements == 2 * few
    assert counts.commits == 2


class Model:
    """The expected context."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []  # (turn, text)
        self.gone: set[str] = set()  # retracted turns
        self.summary, self.mark = "", 0

    def behind(self) -> list[int]:
        return [
            number
            for number, (turn, _) in enumerate(self.rows)
            if number >= self.mark and turn not in self.gone
        ]

    def compact(self, keep: int, summary: str) -> None:
        behind = self.behind()
        if keep <= len(behind):
            self.summary = summary
            covered = behind[: len(behind) - keep]
            self.mark = covered[-1] + 1 if covered else self.mark

    def seen(self) -> tuple[str, list[str]]:
        return self.summary, [self.rows[number][1] for number in self.behind()]


STEPS = ("new", *["append"] * 3, "take back", *["compact"] * 2)


@pytest.mark.parametrize("seed", range(3))
async def test_random_histories_show_the_summary_and_the_rows_after_it(
    store: SessionStore, seed: int
) -> None:
    chance, model, turn = random.Random(seed), Model(), "t0"  # noqa: S311 - reproducible
    await store.apply(opened("s1"), opened("s2", key="web:a"), started(turn, "s1", said="0"))
    model.rows.append((turn, "0"))
    for number in range(1, 60):
        match chance.choice(STEPS):
            case "new":
                await store.apply(ended(turn))
                turn = f"t{number}"
                await store.apply(started(turn, "s1", said=str(number)))
                model.rows.append((turn, str(number)))
            case "append":
                for session in ("s1", "s2"):
                    row = Message("assistant", str(number))
                    await store.apply(AppendMessages(session, turn, (row,), number))
                model.rows.append((turn, str(number)))
            case "take back":
                gone = chance.choice(sorted({name for name, _ in model.rows} - {turn}) or [""])
                if gone:
                    await store.apply(TakeBackTurn("s1", gone, number))
                    model.gone.add(gone)
            case _:
                keep = chance.randrange(8)
                await store.apply(
                    PutSummary(session_id="s1", keep=keep, summary=f"summary {number}", at=number)
                )
                model.compact(keep, f"summary {number}")
        assert await seen(store) == model.seen()
    assert model.summary
    assert model.mark
