"""Which configuration changes apply without a restart."""

from typing import Any

import pytest
from msgspec.structs import replace

from agent.settings import ModelSettings, Timeouts
from gateway.access.settings import AccessSettings
from gateway.config.diff import RESTART_GATEWAY_KEYS, RESTART_TABLES, plan_reload
from gateway.settings import (
    BusSettings,
    GatewaySettings,
    HttpSettings,
    LimitSettings,
    RouteSettings,
    Settings,
    UserLimits,
)
from platforms.telegram.config import TelegramConfig
from sessions.settings import SessionSettings
from sessions.values.secret import Secret
from sessions.values.size import Size

OLD = Settings(
    model=ModelSettings(provider="openai", name="old", api_key=Secret("sk-one")),
    platforms={"telegram": TelegramConfig(token=Secret("1:one"))},
    limits=LimitSettings(users={"telegram:1": UserLimits(messages_per_minute=1)}),
)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"access": AccessSettings(allow=("telegram:1",))}, "access.allow"),
        ({"gateway": GatewaySettings(busy="steer")}, "gateway.busy"),
        ({"model": replace(OLD.model, name="new")}, "model.name"),
        ({"model": replace(OLD.model, api_key=Secret("sk-two"))}, "model.api_key"),
        (
            {"model": replace(OLD.model, timeouts=Timeouts(gap_text=7.0))},
            "model.timeouts.gap_text",
        ),
        ({"sessions": SessionSettings(reset="idle", idle_minutes=5)}, "sessions.idle_minutes"),
        ({"route": (RouteSettings(match="telegram:*"),)}, "route"),
        (
            {"limits": LimitSettings(users={"telegram:1": UserLimits(messages_per_minute=2)})},
            "limits.users.telegram:1.messages_per_minute",
        ),
        ({"limits": LimitSettings()}, "limits.users.telegram:1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_read_by_turns_and_commands_apply_at_once(
    changes: dict[str, Any], named: str
) -> None:
    new = replace(OLD, **changes)
    found = plan_reload(OLD, new)
    assert found.settings == new
    assert named in found.changed
    assert found.after_restart == ()
    assert found.summary.startswith("Changed: ")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"http": HttpSettings(port=9000)}, "http.port"),
        ({"bus": BusSettings(url="nats://127.0.0.1")}, "bus.url"),
        ({"gateway": GatewaySettings(log_format="json")}, "gateway.log_format"),
        (
            {"platforms": {"telegram": TelegramConfig(token=Secret("1:two"))}},
            "platforms.telegram.token",
        ),
        ({"platforms": {}}, "platforms.telegram"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_of_objects_built_at_the_start_need_a_restart(
    changes: dict[str, Any], named: str
) -> None:
    found = plan_reload(OLD, replace(OLD, **changes))
    assert found.settings == OLD
    assert found.changed == ()
    assert found.after_restart == (named,)
    assert found.summary == f"Needs a restart: {named}."


def test_reload_separates_immediate_changes_from_later_ones() -> None:
    new = replace(
        OLD,
        access=AccessSettings(admins=("telegram:1",)),
        gateway=GatewaySettings(queue_limit=3, disk_low=Size(1)),
        http=HttpSettings(ui=False),
    )
    found = plan_reload(OLD, new)
    assert found.changed == ("gateway.queue_limit", "access.admins")
    assert found.after_restart == ("gateway.disk_low", "http.ui")
    assert found.settings.gateway.queue_limit == 3
    assert found.settings.http == OLD.http


def test_the_same_configuration_changes_nothing() -> None:
    assert plan_reload(OLD, replace(OLD)).summary == "Nothing has changed."


def test_summary_contains_no_secret() -> None:
    found = plan_reload(OLD, replace(OLD, model=replace(OLD.model, api_key=Secret("sk-secret"))))
    assert "sk-" not in found.summary


def test_restart_lists_contain_existing_keys() -> None:
    assert set(Settings.__struct_fields__) > RESTART_TABLES
    assert set(GatewaySettings.__struct_fields__) > RESTART_GATEWAY_KEYS
