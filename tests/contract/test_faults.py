"""Whatever goes wrong with a call of a platform: people see every answer once.

The methods are not listed here: they are those that the service receives in a conversation in which
all goes well, so a new one is covered by itself. In each case one call of one method goes wrong,
once at its first call and, where it is one of those that make an answer final, once at that moment.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.delivery.view import DUPLICATE_MARK
from tests.contract.adapter_kit import REMOTE, Opened, several, side_by_side
from tests.contract.gateway_kit import SLOWLY, answering, running_gateway
from tests.contract.services.contract import Place, Service, Trouble
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

_HOMES = itertools.count()


def _nothing() -> None:
    pass


@asynccontextmanager
async def running(
    opened: Opened, tmp_path: Path
) -> AsyncIterator[tuple[Service, ModelServer, Path]]:
    fails = iter([True])

    def model_of(body: dict[str, Any]) -> Script:
        if body["messages"][-1]["content"].endswith("fail once"):
            return "S400" if next(fails, False) else words("once more")
        return answering(body)

    async with opened() as service, ModelServer(model_of) as model:
        yield service, model, tmp_path / str(next(_HOMES))


def places(service: Service) -> list[Place]:
    assert service.room
    return [service.direct, service.room]


async def converse(
    service: Service,
    model: ModelServer,
    before_the_end: Callable[[], None],
    shown: Callable[[], None],
    *,
    whole: bool = True,
) -> None:
    """A conversation in which everything is used: in private and in a room, live and at once.

    Not whole it ends with the first answers, unless what was to go wrong is still to come.
    """
    for place in places(service):
        await service.say(place, "tell me")
    async with asyncio.timeout(12):
        for number in range(1, 3):
            request = await model.request(number)
            await request.answered.wait()
    before_the_end()  # the answers are complete, but not shown as final yet
    for place in places(service):
        await answered(service, place, SLOWLY)
    shown()
    if whole or service.unmet():
        await go_on(service)


async def go_on(service: Service) -> None:
    await service.command(service.direct, "whoami")
    await told(service, service.direct, f"{service.name}:")
    await service.say(service.direct, "hang")
    await service.until(lambda: any("so far" in text for text in service.screen(service.direct)))
    await service.say(service.direct, "wait")
    await told(service, service.direct, "1 message is queued")
    await service.stop(service.direct)
    await told(service, service.direct, "Stopped")
    await service.say(service.room or service.direct, "fail once")
    await service.until(
        lambda: any(each.buttons for each in service.seen(service.room or service.direct))
    )
    await service.press(service.room or service.direct, "Start over")
    await answered(service, service.room or service.direct, "once more")
    await service.say(service.room or service.direct, "short")
    await answered(service, service.room or service.direct, "short")


async def told(service: Service, place: Place, text: str) -> None:
    """Words of ours that may have arrived are not shown again where only a mark could say so."""

    def enough() -> bool:
        shown = any(text in each for each in service.screen(place))
        return shown or (service.name == "telegram" and not service.unmet())

    await service.until(enough)


async def answered(service: Service, place: Place, text: str) -> None:
    await service.until(lambda: bool(copies(service, place, text)), 16)


def copies(service: Service, place: Place, text: str) -> list[str]:
    """The messages that show an answer for good."""
    return [
        each.text
        for each in service.seen(place)
        if not each.passing and not each.buttons and each.text.strip().endswith(text)
    ]


async def conversation(
    service: Service,
    model: ModelServer,
    home: Path,
    before_the_end: Callable[[], None] = _nothing,
    shown: Callable[[], None] = _nothing,
    *,
    whole: bool = True,
) -> None:
    """A conversation, until nothing is left to do; each moment is told."""
    async with running_gateway(home, service, model):
        await converse(service, model, before_the_end, shown, whole=whole)
        await service.send_again()
        await service.settled()
        await service.rests()


async def methods_of(opened: Opened, tmp_path: Path) -> tuple[list[str], list[str]]:
    """What a service receives when all goes well; and of that, what makes an answer final."""
    moments: list[int] = []
    async with running(opened, tmp_path) as (service, model, home):

        def note() -> None:
            moments.append(len(service.called()))

        await conversation(service, model, home, note, note)
        assert service.violations() == []
        calls = [each.method for each in service.called()]
    return list(dict.fromkeys(calls)), list(dict.fromkeys(calls[slice(*moments)]))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", REMOTE)
async def test_whatever_call_goes_wrong_every_answer_is_there_once(
    name: str, tmp_path: Path
) -> None:
    async with several(name) as opened:
        methods, late = await methods_of(opened, tmp_path)

        async def first(method: str, trouble: Trouble) -> None:
            async with running(opened, tmp_path) as (service, model, home):
                service.fail(method, trouble)
                await conversation(service, model, home)
                check(service, model, trouble)

        async def last(method: str, trouble: Trouble) -> None:
            async with running(opened, tmp_path) as (service, model, home):

                def break_it() -> None:
                    service.fail(method, trouble)

                await conversation(service, model, home, break_it, whole=False)
                check(service, model, trouble)

        cases: dict[str, Callable[[], Awaitable[None]]] = {}
        for trouble in Trouble:
            for method in methods:
                cases[f"{trouble.value} on {method}"] = partial(first, method, trouble)
            for method in late:
                cases[f"{trouble.value} on {method}, at the end"] = partial(last, method, trouble)
        await side_by_side(cases)


def check(service: Service, model: ModelServer, trouble: Trouble) -> None:
    """Nothing is lost, nothing is twice, and only where it cannot be known a mark says so."""
    assert service.unmet() == []
    assert service.violations() == []
    answers = [(place, SLOWLY) for place in places(service)]
    if len(model.requests) > len(answers):
        answers += [(places(service)[1], text) for text in ("once more", "short")]
    for place, text in answers:
        shown = copies(service, place, text)
        marked = [each for each in shown if DUPLICATE_MARK in each]
        whole = [each for each in shown if DUPLICATE_MARK not in each]
        if marked and not whole:  # what was cut off may have been the beginning of a live answer
            whole = [
                each for each in service.screen(place) if each and text.startswith(each.strip())
            ]
        if service.name == "telegram" and trouble in {Trouble.CUT_BEFORE, Trouble.BROKEN}:
            assert (len(whole), len(marked)) in {(1, 0), (0, 1)}, shown
        elif service.name == "telegram" and trouble is Trouble.CUT_AFTER:
            assert len(whole) == 1, shown
            assert len(marked) <= 1, shown
        else:
            assert (len(whole), len(marked)) == (1, 0), shown
    if service.name != "telegram" or trouble is Trouble.LIMITED:
        assert not any(
            DUPLICATE_MARK in text for place in places(service) for text in service.screen(place)
        )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", REMOTE)
async def test_while_one_chat_waits_out_a_429_the_others_go_on(name: str, tmp_path: Path) -> None:
    """Whichever call about the chat has met it."""
    async with several(name) as opened:
        async with running(opened, tmp_path) as (service, model, home):
            await conversation(service, model, home)
            here = service.direct.chat
            methods = dict.fromkeys(each.method for each in service.called() if each.chat == here)

        async def case(method: str) -> None:
            async with (
                running(opened, tmp_path) as (service, model, home),
                running_gateway(home, service, model) as gateway,
                asyncio.TaskGroup() as group,
            ):
                service.fail(method, Trouble.LIMITED, place=service.direct, seconds=60)
                talk = group.create_task(converse(service, model, _nothing, _nothing))
                await service.until(lambda: not service.unmet())
                other = places(service)[1]
                await service.say(other, "meanwhile")
                await answered(service, other, "meanwhile")  # long before the minute is over
                assert not [each for each in service.violations() if "Retry-After" in each]
                talk.cancel()
                await gateway.crash()

        await side_by_side({method: partial(case, method) for method in methods})
