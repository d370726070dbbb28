"""The contestants of tests.bench.libraries do the same work as the code of the product."""

from pathlib import Path

import pytest

from agent.answer.partial_json import read_string_members
from agent.web.urls import FetchRules
from gateway.observe.metrics import Metrics
from tests.bench import libraries
from tests.fakes.certificates import certified
from tests.fakes.shelf import PNG, Shelf, answer


@pytest.mark.parametrize("kind", [libraries.Ours, libraries.Core, libraries.Client])
async def test_every_fetcher_reads_the_same_body(
    tmp_path: Path, kind: type[libraries.Ours | libraries.Core | libraries.Client]
) -> None:
    _, client = certified(tmp_path, libraries.NAME)
    async with Shelf({"/": answer(PNG)}).open() as shelf:
        rules = FetchRules(extra_addresses={("127.0.0.1", shelf.port)})
        url = f"http://{libraries.NAME}:{shelf.port}/"
        assert await kind(rules, client).get(url, len(PNG)) == PNG


def test_jiter_reads_the_same_members_of_valid_json() -> None:
    text = libraries.TEXTS["escapes"]
    for cut in range(len(text) + 1):
        assert libraries.by_jiter(text[:cut]) == read_string_members(text[:cut])


def test_the_library_counts_what_our_types_count() -> None:
    ours, theirs = Metrics(), libraries.with_library()
    for ledger in (ours, theirs):
        ledger.turns.add("slack", "done", amount=2)
        ledger.turn_seconds.observe(3, "slack")
    family = next(iter(theirs.turns._metric.collect()))  # type: ignore[attr-defined]
    totals = {
        tuple(each.labels.values()): each.value
        for each in family.samples
        if each.name.endswith("_total")
    }
    assert totals == dict(ours.turns.read())
