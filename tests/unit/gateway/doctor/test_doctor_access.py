"""Doctor checks of access and spending."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.settings import AgentSettings, ModelSettings, TargetSettings
from gateway.access.people import AccessState, PairedPerson
from gateway.access.settings import AccessSettings
from gateway.operate.doctor.access import check_access
from gateway.operate.doctor.spending import _limit_findings, check_spending, is_paid
from gateway.settings import LimitSettings, Settings, UserLimits
from platforms.telegram import TelegramConfig
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from sessions.values.finding import Finding
from sessions.values.secret import Secret
from tests.fakes.case import case_of, only, told

CHATS = {"telegram": TelegramConfig(token=Secret("t"))}


async def looked(home: Path, access: AccessSettings | None = None, **more: Any) -> list[Finding]:
    given = {"platforms": CHATS, "access": access or AccessSettings(), **more}
    return list(await check_access(case_of(home, **given)))


async def befriend(home: Path, *friends: PairedPerson) -> None:
    url = f"sqlite:///{home / 'holdfast.db'}"
    store = await SessionStore.open(url, clock=SystemClock())
    book = msgspec.json.encode(AccessState("key", friends=friends)).decode()
    await store.put_value("people", "book", book)
    await store.close()


async def test_a_missing_admin_is_reported_with_the_claim_command(tmp_path: Path) -> None:
    found = only(await looked(tmp_path), "admins")
    assert (found.level, "holdfast pair claim" in found.fix) == ("warn", True)


async def test_a_configured_or_claimed_admin_is_ok(tmp_path: Path) -> None:
    assert told(await looked(tmp_path, AccessSettings(admins=("telegram:1",)))) == [
        ("ok", "admins")
    ]
    await befriend(tmp_path, PairedPerson("telegram:2", "Bo", admin=False, since=1))
    assert told(await looked(tmp_path)) == [("warn", "admins")]
    await befriend(tmp_path, PairedPerson("telegram:1", "Ann", admin=True, since=1))
    assert told(await looked(tmp_path)) == [("ok", "admins")]


async def test_without_a_chat_platform_no_admin_is_needed(tmp_path: Path) -> None:
    assert told(await looked(tmp_path, platforms={})) == [("ok", "admins")]


async def test_access_open_to_everyone_is_reported(tmp_path: Path) -> None:
    access = AccessSettings(allow=("telegram:*",), admins=("telegram:1",))
    found = only(await looked(tmp_path, access), "open to all")
    assert (found.level, "telegram:*" in found.text) == ("warn", True)


async def test_access_closed_to_everyone_is_reported(tmp_path: Path) -> None:
    found = await looked(tmp_path, AccessSettings(pairing=False))
    assert ("warn", "no access") in told(found)


@pytest.mark.parametrize(
    ("allow", "level"),
    [
        ((), "ok"),
        (("telegram:1",), "ok"),
        (("telegram:2",), "warn"),
        (("telegram:-1001/*",), "warn"),
    ],
)
async def test_a_shared_workspace_is_reported(
    tmp_path: Path, allow: tuple[str, ...], level: str
) -> None:
    agent = AgentSettings(workspace=tmp_path)
    access = AccessSettings(allow=allow, admins=("telegram:1",))
    found = only(await looked(tmp_path, access, agent=agent), "workspace")
    assert found.level == level
    assert ("workspace" in dict(told(await looked(tmp_path, access)))) is False


async def test_an_unreadable_access_state_is_not_reported_here(tmp_path: Path) -> None:
    await befriend(tmp_path)
    url = f"sqlite:///{tmp_path / 'holdfast.db'}"
    store = await SessionStore.open(url, clock=SystemClock())
    await store.put_value("people", "book", "{")
    await store.close()
    assert told(await looked(tmp_path)) == [("warn", "admins")]


# --- spending --------------------------------------------------------------------------------


def nothing_to_come(_: Iterable[str | int]) -> bool:
    return False


def paid(**more: Any) -> Settings:
    model = ModelSettings(provider="openai", name="gpt", api_key=Secret("k"))
    return msgspec.structs.replace(Settings(), model=model, **more)


def test_a_paid_model_without_a_limit_is_reported() -> None:
    found = only(_limit_findings(paid(), nothing_to_come), "limits")
    assert (found.level, "limits.usd_per_day" in found.fix) == ("warn", True)


@pytest.mark.parametrize(
    "limits",
    [
        LimitSettings(usd_per_day=1),
        LimitSettings(tokens_per_day=1),
        LimitSettings(users={"telegram:1": UserLimits(usd_per_day=1)}),
    ],
)
def test_any_configured_limit_counts(limits: LimitSettings) -> None:
    assert told(_limit_findings(paid(limits=limits), nothing_to_come)) == [("ok", "limits")]


def test_a_free_model_needs_no_limit() -> None:
    own = ModelSettings(
        provider="openai", name="m", base_url="http://127.0.0.1:11434/v1", api_key=Secret("k")
    )
    for model in (ModelSettings(), own, ModelSettings(provider="openai", name="m")):
        settings = msgspec.structs.replace(Settings(), model=model)
        assert not is_paid(settings)
        assert _limit_findings(settings, nothing_to_come) == []
    dear = TargetSettings(provider="anthropic", name="c", api_key=Secret("k"))
    taking_over = msgspec.structs.replace(own, fallback=(dear,))
    assert is_paid(msgspec.structs.replace(Settings(), model=taking_over))


async def test_unsupported_limits_are_not_required(tmp_path: Path) -> None:
    assert _limit_findings(paid(), lambda _: True) == []
    assert await check_spending(case_of(tmp_path)) == []
