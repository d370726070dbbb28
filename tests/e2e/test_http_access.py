"""Access over HTTP: every route of the daemon is tried without and with credentials."""

import contextlib
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import aiohttp
import pytest
from starlette.routing import Route

from gateway.config.loader import read_environment
from gateway.errors import ConfigError
from gateway.runner import GatewayRunner
from gateway.settings import HttpSettings, Settings
from platforms.core.registry import load_specs
from tests.e2e.chat_users import gateway_on
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here

OPEN = {"/", "/enter/{token}", "/web/static/{name}", "/livez", "/readyz"}
"""Routes without authentication: the login page and health checks."""

WITHOUT_SECRETS = {"/openapi.json"}
"""Routes without secrets, which are neither required to be open nor protected."""

PATH_VALUES = {"{chat}": "chat1", "{seq:int}": "1", "{place:int}": "0", "{name:path}": "demo"}
CSRF = "X-Holdfast-CSRF"


class Client:
    """A daemon in this process, seen by an HTTP client."""

    def __init__(self, runner: GatewayRunner, http: aiohttp.ClientSession, home: Path) -> None:
        assert runner.url
        self.url = runner.url.rstrip("/")
        self.key = (home / "api_key").read_text().strip()
        self._runner = runner
        self._http = http

    async def link(self) -> str:
        return str(await self._runner.operations["link"]())

    def protected_routes(self) -> Iterable[tuple[str, str]]:
        """Yield method and path of every protected route."""
        assert self._runner._open
        assert self._runner._open.app
        for route in self._runner._open.app.routes:
            assert isinstance(route, Route)
            if route.path in OPEN | WITHOUT_SECRETS:
                continue
            path = route.path
            for name, value in PATH_VALUES.items():
                path = path.replace(name, value)
            path = re.sub(r"\{\w+\}", "x", path)
            for method in sorted(route.methods or ()):
                yield method, path

    async def asked(self, method: str, path: str, **headers: str) -> int:
        async with self._http.request(method, self.url + path, headers=headers) as response:
            await response.read()
            return response.status


@contextlib.asynccontextmanager
async def client_of_daemon(home: Path) -> AsyncIterator[Client]:
    async with (
        ModelServer() as model,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
        gateway_on({}, home, model, known=load_specs(), served=True) as runner,
    ):
        yield Client(runner, http, home)


async def test_every_protected_route_needs_the_key_or_the_cookie(tmp_path: Path) -> None:
    async with client_of_daemon(tmp_path) as daemon:
        found = list(daemon.protected_routes())
        assert {("POST", "/v1/chat/completions"), ("GET", "/metrics"), ("GET", "/web/chats")} <= {
            *found
        }
        key = daemon.key
        wrong: dict[str, dict[str, str]] = {
            "nothing": {},
            "another key": {"Authorization": f"Bearer {key[:-1]}x"},
            "the key bare": {"Authorization": key},
            "the key as a password": {"Authorization": f"Basic {key}"},
            "the key elsewhere": {"Api-Key": key},
            "the key as a cookie": {"Cookie": f"holdfast={key}; api_key={key}"},
            "a cookie of nobody": {"Cookie": "holdfast_00000000=" + "x" * 43},
        }
        for method, path in found:
            for how, headers in wrong.items():
                status = await daemon.asked(method, path, **headers)
                assert status == 401, (how, method, path)
            assert await daemon.asked(method, f"{path}?api_key={key}&key={key}") == 401
            if not path.startswith("/v1/"):  # the API also takes this header
                assert await daemon.asked(method, path, **{"X-Api-Key": key}) == 401


async def test_key_opens_the_api_but_not_the_page(tmp_path: Path) -> None:
    async with client_of_daemon(tmp_path) as daemon:
        shown = {"Authorization": f"Bearer {daemon.key}"}
        for method, path in daemon.protected_routes():
            status = await daemon.asked(method, path, **shown)
            assert (status == 401) == path.startswith("/web/"), (method, path, status)


async def test_cookie_opens_the_page_but_not_the_api(
    tmp_path: Path,
) -> None:
    async with client_of_daemon(tmp_path) as daemon:
        link = (await daemon.link()).removeprefix(daemon.url)
        assert await daemon.asked("GET", link) == 200
        tried = set()
        for method, path in daemon.protected_routes():
            if not path.startswith("/web/"):
                assert await daemon.asked(method, path) == 401, (method, path)
            elif method not in {"GET", "HEAD"}:
                tried.add(method)
                for headers in ({}, {CSRF: ""}, {CSRF: "x" * 64}):
                    status = await daemon.asked(method, path, **headers)
                    assert status == 403, (method, path)
        assert tried == {"POST", "DELETE"}
        assert await daemon.asked("GET", "/web/chats") == 200


# --- public addresses -----------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - refused
def test_public_address_without_a_key_is_refused(tmp_path: Path, host: str) -> None:
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("holdfast")),
            *("run", "--set", f'http.host="{host}"', "--set", "http.port=0"),
        ],
        env={**read_environment(), "HOLDFAST_HOME": str(tmp_path), "HOME": str(tmp_path)},
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 78  # systemd does not restart it
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"{host} is not a local address; set http.api_key" in line
    assert not (tmp_path / "api_key").exists()


async def test_name_that_resolves_to_a_public_address_is_refused(
    tmp_path: Path,
) -> None:
    """The address of a name such as `localhost` is only known after the port is bound."""
    everywhere = HttpSettings(host="0.0.0.0", port=0)  # noqa: S104
    runner = GatewayRunner(Settings(http=everywhere), tmp_path, specs={}, clock=clock_here())
    with pytest.raises(
        ConfigError, match=r"resolves to 0\.0\.0\.0, which other machines can reach"
    ) as told:
        await runner.run()
    assert told.value.exit_code == 78
    assert runner._http_server
    with pytest.raises(ConnectionRefusedError), socket.socket() as trying:
        trying.connect(("127.0.0.1", runner._http_server.port))
