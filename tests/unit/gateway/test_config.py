"""The layers of the configuration, and all its errors: one line each, with the position."""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from gateway.config.loader import (
    ConfigOptions,
    LoadedConfig,
    check,
    config_file,
    load,
    read_environment,
    state_folder,
)
from gateway.errors import CannotStart, ConfigError, HoldfastError
from gateway.settings import Settings
from platforms.core.contract import PlatformSpec
from sessions.settings import StoreSettings
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from sessions.values.spelling import closest_match, did_you_mean


class PigeonSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A platform of another package."""

    token: Secret
    loft: Secret | None = None
    mode: Literal["fly", "walk"] = "fly"
    address: str | None = None
    perches: Annotated[int, Meta(ge=1)] = 3
    patience: Duration = Duration(5)

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        if self.mode == "walk" and self.address is None:
            yield ("mode",), 'is "walk", which needs address as well'


def never_built(*_: object) -> Any:
    raise AssertionError


SPECS = {
    "pigeon": PlatformSpec(
        "pigeon", PigeonSettings, build=never_built, secrets={"token": "PIGEON_TOKEN"}
    ),
    "web": PlatformSpec("web", type("Web", (Struct,), {}), never_built),
}

Write = Callable[[str], Path]
NOTHING: Mapping[str, str] = {}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes `holdfast.toml`, readable by its owner only."""

    def write_it(text: str) -> Path:
        path = tmp_path / "holdfast.toml"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    return write_it


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests away from configuration files of the machine."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)


def loaded(*sets: str, path: Path | None = None, env: Mapping[str, str] = NOTHING) -> LoadedConfig:
    return load(ConfigOptions(path, sets), {"HOME": "/nowhere", **env}, SPECS)


def settings(*sets: str, path: Path | None = None, env: Mapping[str, str] = NOTHING) -> Settings:
    return loaded(*sets, path=path, env=env).settings


def problems(*sets: str, path: Path | None = None, env: Mapping[str, str] = NOTHING) -> list[str]:
    """Return the problems, with the file's name shortened to `F`."""
    report = check(ConfigOptions(path, sets), {"HOME": "/nowhere", **env}, SPECS)
    return [line.replace(str(path), "F") for line in report.problems]


# --- layers ------------------------------------------------------------------------------------


def test_defaults_apply_without_any_configuration() -> None:
    found = loaded()
    assert found.settings == Settings(model=found.settings.model)
    assert (found.settings.model.provider, found.settings.model.name) == ("demo", "demo")
    assert found.path is None
    assert found.sources == {}
    assert found.warnings == ()
    assert found.home == Path("/nowhere/.local/share/holdfast")


def test_documented_defaults() -> None:
    found = settings()
    assert found.gateway.drain_seconds == 60
    assert float(found.gateway.stale_after) == 86400
    assert (found.gateway.busy, found.gateway.queue_limit) == ("queue", 20)
    assert (found.http.host, found.http.port, found.http.ui) == ("127.0.0.1", 8420, True)
    assert (found.agent.max_steps, found.agent.tool_timeout) == (90, 300)
    assert (found.tools.enabled, found.tools.approval) == (("files",), "ask")
    assert (found.access.allow, found.access.pairing) == ((), True)
    assert found.limits.messages_per_minute == 20
    assert found.bus.url == "local"


def test_precedence_is_set_then_file_then_environment_then_default(write: Write) -> None:
    environ = {"HOLDFAST_HTTP__PORT": "1"}
    path = write("[http]\nport = 2\n")
    assert settings().http.port == 8420
    assert settings(env=environ).http.port == 1
    assert settings(path=path, env=environ).http.port == 2
    assert settings("http.port=3", path=path, env=environ).http.port == 3
    assert settings("http.port=3", "http.port=4", path=path, env=environ).http.port == 4


def test_tables_of_layers_are_merged(write: Write) -> None:
    path = write('[http]\nport = 2\n[limits.users."telegram:1"]\nmessages_per_minute = 1\n')
    found = settings(
        "http.ui=false",
        'limits.users."telegram:2".messages_per_minute=2',
        "model={temperature=1, max_output_tokens=5}",
        "model.temperature=0.5",
        path=path,
        env={"HOLDFAST_HTTP__HOST": "::1"},
    )
    assert (found.http.host, found.http.port, found.http.ui) == ("::1", 2, False)
    assert {who: user.messages_per_minute for who, user in found.limits.users.items()} == {
        "telegram:1": 1,
        "telegram:2": 2,
    }
    assert (found.model.temperature, found.model.max_output_tokens) == (0.5, 5)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("model.reasoning_effort=low", lambda found: found.model.reasoning_effort == "low"),
        ('agent.system_prompt="a # b"', lambda found: found.agent.system_prompt == "a # b"),
        ("agent.system_prompt=a = b", lambda found: found.agent.system_prompt == "a = b"),
        ("agent.system_prompt=42", lambda found: found.agent.system_prompt == "42"),
        ("agent.system_prompt=1\nx=2", lambda found: found.agent.system_prompt == "1\nx=2"),
        ("agent.system_prompt=", lambda found: found.agent.system_prompt == ""),
        ('access.allow=["telegram:1"]', lambda found: found.access.allow == ("telegram:1",)),
        ("access.pairing=false", lambda found: found.access.pairing is False),
        ("gateway.stale_after=90m", lambda found: found.gateway.stale_after == 5400),
        ("gateway.stale_after=5", lambda found: found.gateway.stale_after == 5),
        ("gateway.drain_seconds=5", lambda found: found.gateway.drain_seconds == 5.0),
        (' "http" . port = 5', lambda found: found.http.port == 5),
        ("route=[{match='*'}]", lambda found: found.route[0].match == "*"),
        ("http.api_key=123456", lambda found: found.http.api_key == Secret("123456")),
        (
            "store.url=postgresql://a@b/c",
            lambda found: found.store == StoreSettings(url=Secret("postgresql://a@b/c")),
        ),
    ],
)
def test_set_value_is_toml_or_a_bare_string(
    setting: str, expected: Callable[[Settings], bool]
) -> None:
    assert expected(settings(setting))


def test_each_value_has_an_origin(write: Write) -> None:
    path = write('[http]\nport = 2\nui = true\n[access]\nallow = [\n"telegram:1",\n]\n')
    found = loaded(
        "http.ui=false", path=path, env={"HOLDFAST_MODEL__NAME": "x", "OPENAI_API_KEY": "sk-1"}
    )
    assert found.sources["http", "port"] == f"{path}:2"
    assert found.sources["http", "ui"] == "--set http.ui=false"
    assert found.sources["access", "allow", 0] == f"{path}:6"
    assert found.sources["model", "name"] == "HOLDFAST_MODEL__NAME"
    assert found.sources["model", "api_key"] == "OPENAI_API_KEY"
    assert found.sources["model", "provider"] == "OPENAI_API_KEY"
    assert ("http", "host") not in found.sources


# --- files and folders -------------------------------------------------------------------------


def test_config_file_is_searched_in_the_documented_order(tmp_path: Path) -> None:
    user = tmp_path / "home/.config/holdfast/holdfast.toml"
    user.parent.mkdir(parents=True)
    environ = {"HOME": str(tmp_path / "home")}
    user.touch()
    assert config_file(ConfigOptions(), environ) == user
    Path("holdfast.toml").touch()
    assert config_file(ConfigOptions(), environ) == Path("holdfast.toml")
    environ["HOLDFAST_CONFIG"] = "/named/in/environment"
    assert config_file(ConfigOptions(), environ) == Path("/named/in/environment")
    assert config_file(ConfigOptions(config=Path("given")), environ) == Path("given")


@pytest.mark.parametrize(
    ("environ", "home"),
    [
        ({"HOLDFAST_HOME": "/a", "STATE_DIRECTORY": "/b", "HOME": "/c"}, "/a"),
        ({"STATE_DIRECTORY": "/b:/x", "HOME": "/c"}, "/b"),
        ({"HOME": "/c"}, "/c/.local/share/holdfast"),
        ({}, f"{Path.home()}/.local/share/holdfast"),
    ],
)
def test_the_state_folder_is_chosen_in_the_documented_order(
    environ: Mapping[str, str], home: str
) -> None:
    assert str(state_folder(environ)) == home


def test_relative_state_folder_becomes_absolute() -> None:
    assert state_folder({"HOLDFAST_HOME": "here"}) == Path.cwd() / "here"


def test_environment_is_that_of_the_process() -> None:
    assert read_environment() is os.environ  # noqa: TID251 - under test


def test_missing_named_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "missing.toml"
    assert problems(path=path) == ["F: cannot be read: No such file or directory"]
    assert problems(env={"HOLDFAST_CONFIG": str(path)}) == [
        f"{path}: cannot be read: No such file or directory"
    ]
    assert problems(path=tmp_path) == ["F: cannot be read: Is a directory"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[http]\nport = \n", "F:2: is not TOML: Invalid value"),
        (b"[http\n", "F:1: is not TOML: Expected ']' at the end of a table declaration"),
        (b"[a]\n[a]\n", "F:2: is not TOML: Cannot declare ('a',) twice"),
        (b"a = 1\na = 2\n", "F:2: is not TOML: Cannot overwrite a value"),
        (b"a = 1\nb", "F:2: is not TOML: Expected '=' after a key in a key/value pair"),
        (b"\xff", "F: is not UTF-8 text"),
        (b"a = " + b"[" * 50_000, "F: is nested too deeply"),
        (b"a = " + b"9" * 5000, "F:1: is not TOML: Exceeds the limit (4300 digits)"),
    ],
)
def test_broken_file_is_reported_in_one_line_with_its_position(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_bytes(content)
    (line,) = problems(path=path)
    assert line.startswith(problem)
    assert "\n" not in line


def test_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_bytes(b'\xef\xbb\xbf[http]\r\n\r\nport = "x"\r\n')
    assert problems(path=path) == [
        "F:3: http.port must be a whole number from 0 to 65535, not text"
    ]


def test_broken_file_does_not_hide_errors_of_the_environment(write: Write) -> None:
    assert len(problems(path=write("="), env={"HOLDFAST_HOEM": "x"})) == 2


# --- wrong keys and values ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[model]\n\nmax_ouput_tokens = 3",
            "F:3: unknown key model.max_ouput_tokens (did you mean max_output_tokens?)",
        ),
        ("[modle]\nname = 'x'", "F:1: unknown key modle (did you mean model?)"),
        ("[zzz]\nx = 1", "F:1: unknown key zzz"),
        ("drain_seconds = 3", "F:1: unknown key drain_seconds (it belongs to [gateway])"),
        ("[gateway]\nport = 3", "F:2: unknown key gateway.port (it belongs to [http])"),
        (
            "[model.timeouts]\ngap_txt = 1",
            "F:2: unknown key model.timeouts.gap_txt (did you mean gap_text?)",
        ),
        (
            "[[route]]\nmatch = '*'\n[[route]]\nmatch = 'x'\nmodle = 'y'",
            "F:5: unknown key route[1].modle (did you mean model?)",
        ),
        (
            '[limits.users."telegram:1"]\nusd = 1',
            'F:2: unknown key limits.users."telegram:1".usd (did you mean usd_per_day?)',
        ),
        (
            "[http]\nport = '8'",
            "F:2: http.port must be a whole number from 0 to 65535, not text",
        ),
        (
            "[http]\nport = 99999",
            "F:2: http.port must be a whole number from 0 to 65535, not 99999",
        ),
        (
            "[http]\nport = true",
            "F:2: http.port must be a whole number from 0 to 65535, not true or false",
        ),
        ("[http]\nport = 1.5", "F:2: http.port must be a whole number from 0 to 65535, not 1.5"),
        ("[http]\nui = 1", "F:2: http.ui must be true or false, not a whole number"),
        ("[http]\nhost = ''", "F:2: http.host must be text that is not empty"),
        ("[http]\nhost = ['x']", "F:2: http.host must be text that is not empty, not a list"),
        (
            "[http]\nhost = 1979-05-27",
            "F:2: http.host must be text that is not empty, not a date or time",
        ),
        ("http = 3", "F:1: http must be a table ([http]), not a whole number"),
        ("[[http]]\nport = 3", "F:1: http must be a table ([http]), not a list"),
        (
            "[mcp]\nname = 'x'",
            "F:1: mcp must be a list of tables, each written [[...]], not a table",
        ),
        ("route = [3]", "F:1: route[0] must be a table ([route[0]]), not a whole number"),
        (
            "[model]\nfallback = 'x'",
            "F:2: model.fallback must be a list of tables, each written [[...]], not text",
        ),
        ("[limits]\nusers = 3", "F:2: limits.users must be a table, not a whole number"),
        ("[access]\nallow = 'telegram:1'", "F:2: access.allow must be a list, each text, not text"),
        (
            "[access]\nallow = [\n'telegram:1',\n7]",
            "F:4: access.allow[1] must be text, not a whole number",
        ),
        (
            "[gateway]\nbusy = 'quue'",
            (
                'F:2: gateway.busy must be one of "queue", "steer", "interrupt", "collect", '
                'not "quue" (did you mean queue?)'
            ),
        ),
        (
            "[tools]\nenabled = ['files', 'shel']",
            (
                'F:2: tools.enabled[1] must be one of "files", "shell", "web", "memory", "schedule", '
                'not "shel" (did you mean shell?)'
            ),
        ),
        (
            "[gateway]\nqueue_limit = 0",
            "F:2: gateway.queue_limit must be a whole number of at least 1, not 0",
        ),
        (
            "[gateway]\ndrain_seconds = inf",
            "F:2: gateway.drain_seconds must be a number of at least 0, not inf",
        ),
        (
            "[gateway]\ndrain_seconds = nan",
            "F:2: gateway.drain_seconds must be a number of at least 0, not nan",
        ),
        (
            "[http]\nsse_keepalive = 0",
            "F:2: http.sse_keepalive must be a number greater than 0, not 0",
        ),
        (
            "[limits]\nusd_per_day = -0.5",
            "F:2: limits.usd_per_day must be a number from 0 to 1000000, not -0.5",
        ),
        (
            "[gateway]\nstale_after = '1 year'",
            (
                'F:2: gateway.stale_after must be a span of time such as "24h", "1h 30m" '
                "or a number of seconds"
            ),
        ),
        (
            "[sessions]\nreset='daily'\ndaily_at = '25:00'",
            'F:3: sessions.daily_at must be a time of day such as "04:00"',
        ),
        (
            "[model]\nbase_url = 'ftp://x'",
            "F:2: model.base_url must be an http:// or https:// address",
        ),
        ("[bus]\nurl = 'redis://x'", 'F:2: bus.url must be "local" or a nats:// address'),
        (
            "[http]\napi_key = 5",
            "F:2: http.api_key must be text: the secret itself, env:NAME or file:PATH",
        ),
        ("[agent]\nworkspace = 5", "F:2: agent.workspace must be text: a path"),
        ("[[route]]\nmodel = 'x'", "F:1: route[0].match is missing"),
        ("[platforms.pigeno]\n", "F:1: unknown platform pigeno (did you mean pigeon?)"),
        ("[platforms.icq]\n", "F:1: unknown platform icq; known are pigeon, web"),
        ("platforms = 3", "F:1: platforms must be tables, such as [platforms.telegram]"),
        (
            "[platforms.pigeon]\ntokn = 'x'\ntoken='y'",
            "F:2: unknown key platforms.pigeon.tokn (did you mean token?)",
        ),
        (
            "[platforms.pigeon]\n",
            "F:1: platforms.pigeon.token is missing; set it, or PIGEON_TOKEN in the environment",
        ),
        (
            "[platforms.pigeon]\ntoken='x'\nperches=0",
            "F:3: platforms.pigeon.perches must be a whole number of at least 1, not 0",
        ),
    ],
)
def test_errors_in_a_file_are_reported_with_line_and_key(
    write: Write, text: str, expected: str
) -> None:
    assert problems(path=write(text)) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[sessions]\nreset = 'idle'",
            'F:2: sessions.reset is "idle", which needs sessions.idle_minutes as well',
        ),
        (
            "[sessions]\nreset = 'daily'",
            'F:2: sessions.reset is "daily", which needs sessions.daily_at as well',
        ),
        (
            "[sessions]\nidle_minutes = 5",
            'F:2: sessions.idle_minutes has no effect unless sessions.reset is "idle" or "both"',
        ),
        (
            "[http]\nhost = '0.0.0.0'",
            "F:2: http.host 0.0.0.0 is not a local address; set http.api_key, or use 127.0.0.1",
        ),
        (
            "[http]\nhost = '127.evil.example'",
            "F:2: http.host 127.evil.example is not a local address; set http.api_key, or use 127.0.0.1",
        ),
        *(
            (
                f"[http]\nhost = '{host}'",
                f"F:2: http.host {host} is not a local address; set http.api_key, or use 127.0.0.1",
            )
            for host in (
                "::",
                "[::]",
                "::ffff:0.0.0.0",
                "::ffff:10.0.0.1",
                "0",
                "127.1",
                "localhost.example",
            )
        ),
        *(
            (
                f"[http]\napi_key = {json.dumps(key)}",
                "F:2: http.api_key must consist of printable ASCII characters, because clients send it in a header",
            )
            for key in ("schlüssel-schlüssel", "tab\tkey", "line\nkey", "\x7f" * 20)
        ),
        (
            "[http]\nslow_after = 0",
            "F:2: http.slow_after must be greater than 0",
        ),
        (
            "[store]\nurl = 'mysql://x'",
            "F:2: store.url must begin with sqlite:/// or postgresql://",
        ),
        (
            "[agent]\nsystem_prompt='x'\nsystem_prompt_file='y'",
            "F:3: agent.system_prompt_file cannot be combined with agent.system_prompt; keep one",
        ),
        (
            "[model]\nname = 'gpt'",
            "F:2: model.name has no effect with the demo model; set model.provider as well",
        ),
        (
            "[model]\nprovider = 'demo'\napi_key = 'k'",
            "F:3: model.api_key has no effect with the demo model; set model.provider as well",
        ),
        (
            "[model.timeouts]\nfirst_token = 10\nlifetime = 5",
            "F:3: model.timeouts.lifetime must not be shorter than first_token (10 s)",
        ),
        ("[[mcp]]\nname='a'", "F:1: mcp[0] needs either a command or a url"),
        (
            "[[mcp]]\nname='a'\ncommand='c'\nheaders={x='y'}",
            "F:4: mcp[0].headers has no effect without url",
        ),
        (
            "[[mcp]]\nname='a'\nurl='u'\nargs=['y']",
            "F:4: mcp[0].args has no effect without command",
        ),
        (
            "[[mcp]]\nname='a'\nurl='u'\n[[mcp]]\nname='a'\nurl='u'",
            'F:5: mcp[1].name "a" is already the name of another [[mcp]]',
        ),
        (
            "[access]\nallow = ['telegram:*', 'telegram:@ann']",
            'F:2: access.allow[1] "telegram:@ann" contains a name, which can change; use the id that /whoami shows',
        ),
        (
            "[access]\nadmins = ['telegram:*']",
            'F:2: access.admins[0] "telegram:*" would make everyone there an admin; list each person, or a role',
        ),
        (
            "[limits.users.ann]\nusd_per_day=1",
            "F:1: limits.users.ann is not platform:id, such as telegram:1001",
        ),
        (
            "[limits.users.'telegram:*']\nusd_per_day=1",
            'F:1: limits.users."telegram:*" must be one person, such as telegram:1001',
        ),
        (
            "[limits.chats.hall]\nusd_per_day=1",
            "F:1: limits.chats.hall is not a chat, such as telegram:-100123 or slack:T1/C1",
        ),
        (
            "[limits.chats.'telegram:-1:u=7']\nusd_per_day=1",
            'F:1: limits.chats."telegram:-1:u=7" must be a chat without a thread or a person',
        ),
        (
            "[platforms.pigeon]\ntoken='x'\nmode='walk'",
            'F:3: platforms.pigeon.mode is "walk", which needs address as well',
        ),
        (
            "[[mcp]]\nname='a'\ncommand='c'\nlogin='person'",
            "F:4: mcp[0].login has no effect without url",
        ),
        (
            "[[mcp]]\nname='a'\nurl='u'\nlogin='person'\noauth={grant='client_credentials', client_id='c', client_secret='d'}",
            "F:4: mcp[0].login cannot be combined with oauth.grant = client_credentials",
        ),
    ],
)
def test_conflicting_keys_are_errors(write: Write, text: str, expected: str) -> None:
    assert problems(path=write(text)) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "[http]\nhost = '0.0.0.0'\napi_key = 'k'",
        "[http]\nhost = 'localhost'",
        "[http]\nhost = '127.0.0.2'",
        "[http]\nhost = '[::1]'",
        "[sessions]\nreset = 'both'\nidle_minutes = 5\ndaily_at = '04:00'",
        "[store]\nurl = 'postgresql+psycopg://x/y'",
        "[model.timeouts]\nfirst_token = 10\nlifetime = 10",
        "[platforms.pigeon]\ntoken='x'\nmode='walk'\naddress='roof'\npatience='1m'",
        "[platforms.'pigeon@work']\ntoken='x'",
    ],
)
def test_valid_combinations_are_accepted(write: Write, text: str) -> None:
    assert problems(path=write(text)) == []


def test_all_errors_are_reported_at_once(write: Write) -> None:
    path = write("[http]\nport = 'x'\nhots = 'y'\n[zzz]\n[access]\nallow = [1, 2]\n")
    found = problems("gateway.busy=never", path=path, env={"HOLDFAST_AGENT__MAX_STEPS": "0"})
    assert len(found) == 7
    with pytest.raises(ConfigError) as caught:
        settings("gateway.busy=never", path=path)
    assert str(caught.value).count("\n") == 5
    assert caught.value.exit_code == 78


# --- --set and the environment -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("model.nmae=x", "--set model.nmae=x: unknown key model.nmae (did you mean name?)"),
        (
            "http.port=x",
            "--set http.port=x: http.port must be a whole number from 0 to 65535, not text",
        ),
        (
            "http.port=70000",
            "--set http.port=70000: http.port must be a whole number from 0 to 65535, not 70000",
        ),
        ("http=3", "--set http=3: http must be a table ([http]), not a whole number"),
        (
            "mcp.name=x",
            "--set mcp.name=x: mcp must be a list of tables, each written [[...]], not a table",
        ),
        ("http.port", "--set http.port: is not KEY=VALUE, such as http.port=8421"),
        ("=x", "--set : is not KEY=VALUE, such as http.port=8421"),
        ("a..b=x", "--set a..b: is not KEY=VALUE, such as http.port=8421"),
        ("a b=x", "--set a b: is not KEY=VALUE, such as http.port=8421"),
        (
            "http.api_key=",
            "--set http.api_key: http.api_key must be text: the secret itself, env:NAME or file:PATH",
        ),
        ("model.tokn=topsecret", "--set model.tokn: unknown key model.tokn"),
        ("web.token=topsecret", "--set web.token: unknown key web"),
        ("model.nmae=" + "x" * 40, "--set model.nmae: unknown key model.nmae (did you mean name?)"),
        (
            "access.allow=telegram:1",
            "--set access.allow: access.allow must be a list, each text, not text",
        ),
    ],
)
def test_invalid_set_option_is_reported(setting: str, expected: str) -> None:
    (found,) = problems(setting)
    assert found.startswith(expected)


def test_set_replaces_an_invalid_value_and_table_of_the_file(write: Write) -> None:
    path = write("route = [{match = 'x', modle = 'y'}]\n[http]\nport = 'x'\n")
    found = loaded("http.port=5", "route=[{match = 'y'}]", path=path)
    assert found.settings.http.port == 5
    assert found.settings.route[0].match == "y"
    assert ("route", 0, "modle") not in found.sources


def test_table_can_replace_a_value_of_a_lower_layer(write: Write) -> None:
    path = write("http = 3\n")
    assert settings("http.port=5", path=path).http.port == 5


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HOLDFAST_HOEM", "HOLDFAST_HOEM: unknown variable (did you mean HOLDFAST_HOME?)"),
        (
            "HOLDFAST_MODEL_NAME",
            "HOLDFAST_MODEL_NAME: unknown variable (did you mean HOLDFAST_MODEL__NAME?)",
        ),
        (
            "HOLDFAST_MODEL__NMAE",
            "HOLDFAST_MODEL__NMAE: unknown key model.nmae (did you mean name?)",
        ),
        ("HOLDFAST_MODLE__NAME", "HOLDFAST_MODLE__NAME: unknown key modle (did you mean model?)"),
        (
            "HOLDFAST_HTTP__PORT",
            "HOLDFAST_HTTP__PORT: http.port must be a whole number from 0 to 65535, not text",
        ),
        ("HOLDFAST_HTTP__", "HOLDFAST_HTTP__: unknown key http."),
    ],
)
def test_misspelt_holdfast_variable_is_an_error(name: str, expected: str) -> None:
    (found,) = problems(env={name: "x"})
    assert found.startswith(expected)


def test_foreign_and_empty_variables_are_ignored() -> None:
    others = ("HOLDFAST_SERVICE_HOST", "HOLDFAST_PORT", "HOLDFAST_PORT_8420_TCP", "HTTP__PORT")
    assert (
        problems(env={**dict.fromkeys(others, "tcp://10.0.0.1"), "HOLDFAST_HTTP__PORT": ""}) == []
    )


# --- secrets -----------------------------------------------------------------------------------


def key_of(found: Settings) -> str | None:
    return found.http.api_key.reveal() if found.http.api_key else None


def test_secret_comes_from_the_environment_a_file_or_systemd(write: Write, tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("from file\n")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials/key").write_text("from systemd\n")
    environ = {"MY_KEY": " from env ", "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}

    def read(written: str) -> str | None:
        return key_of(settings(path=write(f"[http]\napi_key = '{written}'"), env=environ))

    assert read("env:MY_KEY") == "from env"
    assert read(f"file:{tmp_path}/key.txt") == "from file"
    assert (
        read("file:key.txt") == "from file"
    )  # relative to the configuration, not to the current folder
    assert read("credential:key") == "from systemd"
    assert read("credential:../../key") == "from systemd"
    assert read("as it is") == "as it is"
    assert read("other:wise") == "other:wise"


@pytest.mark.parametrize(
    ("written", "again"),
    [
        ("file:key.txt", "second"),
        ("credential:key", "second"),
        ("env:MY_KEY", "second"),
        ("first", "first"),
    ],
    ids=["file", "credential", "environment", "literal"],
)
def test_external_secret_can_be_read_again(
    write: Write, tmp_path: Path, written: str, again: str
) -> None:
    environ = {"HOME": "/", "MY_KEY": "first", "CREDENTIALS_DIRECTORY": str(tmp_path)}
    files = tmp_path / "key.txt", tmp_path / "key"
    for each in files:
        each.write_text("first\n")
    options = ConfigOptions(write(f"[http]\napi_key = '{written}'"))
    found = load(options, environ, SPECS).settings.http.api_key
    assert found is not None
    assert found.reread() is found
    environ["MY_KEY"] = "second"
    for each in files:
        each.write_text("second\n")
    assert found.reread().reveal() == again
    for each in files:
        each.unlink()
    del environ["MY_KEY"]
    assert found.reread() is found


def test_secret_file_in_the_home_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").write_text("from home")
    assert key_of(settings("http.api_key=file:~/key")) == "from home"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("env:NOT_SET", "http.api_key env:NOT_SET is not set"),
        ("env:", "http.api_key env: is not set"),
        (
            "file:/no/such/file",
            "http.api_key names /no/such/file, which cannot be read: No such file or directory",
        ),
        ("file:/", "http.api_key names /, which cannot be read: Is a directory"),
        ("file:/dev/null", "http.api_key names /dev/null, which is empty"),
        ("credential:x", "http.api_key is credential:x, but there is no folder of credentials"),
        ("  ", "http.api_key is empty"),
    ],
)
def test_missing_secret_is_an_error(write: Write, written: str, expected: str) -> None:
    assert problems(path=write(f"[http]\napi_key = '{written}'")) == [f"F:2: {expected}"]


def test_binary_secret_file_is_an_error(write: Write, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    assert problems(path=write("[http]\napi_key = 'file:key'")) == [
        f"F:2: http.api_key names {tmp_path}/key, which is not UTF-8 text"
    ]


def test_no_error_shows_a_secret(write: Write) -> None:
    text = "[http]\napi_key = ['hunter2']\nport = 'hunter2'\napi_kye = 'hunter2'\n"
    found = problems("platforms.pigeon.tokken=hunter2", path=write(text))
    assert len(found) == 5
    assert "hunter2" not in "".join(found)


def test_key_shared_with_a_fallback_causes_one_warning(write: Write) -> None:
    path = write("[model]\napi_key = 'hunter2'\nname = 'one'\n[[model.fallback]]\nname = 'two'\n")
    path.chmod(0o644)
    found = loaded(path=path)
    assert found.settings.model.fallback[0].api_key == found.settings.model.api_key
    (warning,) = found.warnings
    assert warning.startswith(f"{path}:2: model.api_key is a secret")
    assert found.sources[("model", "fallback", 0, "api_key")] == f"{path}:2"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_literal_secret_in_a_readable_file_causes_a_warning(write: Write, mode: int) -> None:
    path = write("[http]\n\napi_key = 'hunter2'\n")
    path.chmod(mode)
    assert loaded(path=path).warnings == (
        f"{path}:3: http.api_key is a secret in a file that others can read; run: chmod 600 {path}",
    )
    path.chmod(stat.S_IRUSR)
    assert loaded(path=path).warnings == ()


@pytest.mark.parametrize(
    "text", ["[http]\napi_key = 'env:MY_KEY'", "[store]\nurl = 'postgresql://db/holdfast'"]
)
def test_values_without_a_literal_secret_cause_no_warning(write: Write, text: str) -> None:
    path = write(text)
    path.chmod(0o644)
    assert loaded("platforms.pigeon.token=hunter2", path=path, env={"MY_KEY": "k"}).warnings == ()


def test_url_with_a_password_is_a_literal_secret(write: Write) -> None:
    path = write("[store]\nurl = 'postgresql://ann:hunter2@db/holdfast'")
    path.chmod(0o644)
    assert len(loaded(path=path).warnings) == 1


def test_platform_can_be_configured_by_the_environment_alone() -> None:
    assert settings().platforms == {}
    found = settings(env={"PIGEON_TOKEN": "coo"})
    assert found.platforms == {"pigeon": PigeonSettings(token=Secret("coo"))}


def test_secret_of_the_environment_completes_a_platform_of_the_file(
    write: Write,
) -> None:
    path = write("[platforms.pigeon]\nmode = 'fly'\n")
    pigeon = settings(path=path, env={"PIGEON_TOKEN": "coo"}).platforms["pigeon"]
    assert pigeon == PigeonSettings(token=Secret("coo"))
    path = write("[platforms.pigeon]\ntoken = 'own'\n[platforms.'pigeon@work']\ntoken = 'other'\n")
    found = settings(path=path, env={"PIGEON_TOKEN": "coo"}).platforms
    assert found["pigeon"] == PigeonSettings(token=Secret("own"))
    assert found["pigeon@work"] == PigeonSettings(token=Secret("other"))


def test_holdfast_variable_wins_over_the_usual_variable() -> None:
    found = settings(env={"PIGEON_TOKEN": "usual", "HOLDFAST_PLATFORMS__PIGEON__TOKEN": "ours"})
    assert found.platforms["pigeon"] == PigeonSettings(token=Secret("ours"))


def test_access_entry_of_an_unknown_platform_causes_a_warning(write: Write) -> None:
    path = write("[access]\nallow = ['pigeon:1', 'console:owner', 'pigeno:1']\n")
    assert loaded(path=path).warnings == (
        (
            f"{path}:2: access.allow[2] has no effect: "
            "no platform is called pigeno (did you mean pigeon?)"
        ),
    )


def test_limit_of_an_unknown_platform_causes_a_warning(write: Write) -> None:
    path = write(
        "[limits.users]\n'pigeno:1' = {tokens_per_day = 1}\n'api:key' = {tokens_per_day = 1}\n"
        "[limits.chats]\n'pigeno:-1' = {tokens_per_day = 1}\n'pigeon:-1' = {tokens_per_day = 1}\n"
    )
    hint = "no platform is called pigeno (did you mean pigeon?)"
    assert loaded(path=path).warnings == (
        f'{path}:2: limits.users."pigeno:1" has no effect: {hint}',
        f'{path}:5: limits.chats."pigeno:-1" has no effect: {hint}',
    )


def test_missing_system_prompt_file_is_an_error(write: Write, tmp_path: Path) -> None:
    path = write("[agent]\nsystem_prompt_file = 'prompt.md'\n")
    assert problems(path=path) == [
        (
            f"F:2: agent.system_prompt_file names {tmp_path}/prompt.md, "
            "which cannot be read: No such file or directory"
        )
    ]
    (tmp_path / "prompt.md").write_text("Be kind.")
    assert settings(path=path).agent.system_prompt_file == tmp_path / "prompt.md"


# --- other -------------------------------------------------------------------------------------


def test_check_returns_the_file_and_its_warnings(write: Write) -> None:
    path = write("[http]\napi_key = 'hunter2'\n")
    path.chmod(0o644)
    report = check(ConfigOptions(path), {}, SPECS)
    assert (report.path, report.problems, len(report.warnings)) == (path, (), 1)


def test_errors_have_an_exit_code() -> None:
    assert (ConfigError("x").exit_code, CannotStart("x").exit_code) == (78, 1)
    assert str(HoldfastError("a", "b")) == "a\nb"
    assert str(ConfigError()) == "The configuration cannot work."


@pytest.mark.parametrize(
    ("written", "seconds", "shown"),
    [
        (0, 0, "0s"),
        (1.5, 1.5, "1.5s"),
        ("90s", 90, "1m 30s"),
        ("24h", 86400, "1d"),
        ("1h 30m", 5400, "1h 30m"),
        (" 1H30M ", 5400, "1h 30m"),
        ("2w", 1209600, "2w"),
        ("0.5 h", 1800, "30m"),
    ],
)
def test_durations_are_parsed_and_formatted(written: object, seconds: float, shown: str) -> None:
    assert Duration.parse(written) == seconds
    assert str(Duration.parse(written)) == shown


@pytest.mark.parametrize(
    "written", ["", "24", "h", "-1h", "1y", "1h and", -1, True, [], float("nan")]
)
def test_invalid_durations_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="span of time"):
        Duration.parse(written)


@pytest.mark.parametrize(
    ("word", "found"), [("nmae", "Name"), ("NAME", "Name"), ("xyz", None), ("", None)]
)
def test_nearest_known_word_is_suggested(word: str, found: str | None) -> None:
    assert closest_match(word, ["Name", "other"]) == found
    assert did_you_mean(word, ["Name"]) == (f" (did you mean {found}?)" if found else "")


# --- unsupported keys -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "[tools.shell]\nsandbox = 'none'", "F:2: tools.shell.sandbox", id="key of a section"
        ),
        pytest.param("[voice]\nspeech_model = 'x'", "F:2: voice.speech_model", id="a section"),
        pytest.param(
            "[bus]\nurl = 'nats://x'\n[store]\nurl = 'postgresql://x/y'", "F:2: bus.url", id="bus"
        ),
    ],
)
def test_unsupported_key_is_refused(write: Write, text: str, expected: str) -> None:
    assert problems(path=write(text)) == [f"{expected} has no effect in this version; remove it"]


def test_unsupported_key_is_refused_in_every_layer() -> None:
    assert problems("voice.speech_model=x", env={"HOLDFAST_VOICE__SPEECH_URL": "http://x"}) == [
        "HOLDFAST_VOICE__SPEECH_URL: voice.speech_url has no effect in this version; remove it",
        "--set voice.speech_model=x: voice.speech_model has no effect in this version; remove it",
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[bus]\nurl = 'local'", id="bus"),
        pytest.param("[tools.shell]\nsandbox = 'auto'", id="shell"),
        pytest.param("[tools]\nenabled = ['files']", id="families"),
    ],
)
def test_unsupported_key_with_its_default_is_accepted(write: Write, text: str) -> None:
    assert problems(path=write(text)) == []


def test_bus_between_machines_requires_postgresql(write: Write) -> None:
    assert problems(path=write("[bus]\nurl = 'nats://x'")) == [
        "F:2: bus.url needs a store that several machines can share: postgresql://…",
        "F:2: bus.url has no effect in this version; remove it",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[tools]\nenabled = ['files', 'shell', 'web']",
            "F:2: tools.enabled: not available in this version: shell, web",
        ),
        (
            "[[route]]\nmatch = '*'\ntools = ['files', 'memory']",
            "F:3: route[0].tools: not available in this version: memory",
        ),
    ],
)
def test_unsupported_tool_families_are_refused(write: Write, text: str, expected: str) -> None:
    assert problems(path=write(text)) == [expected]
