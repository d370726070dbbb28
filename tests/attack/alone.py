"""Doors that need no chat platform: workspace tools, tool names, fetches, control socket, files."""

import asyncio
import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from agent.tools.contract import Tool
from agent.web.errors import FetchError
from agent.web.fetch import Fetcher
from agent.web.urls import FetchRules
from gateway.config.loader import ConfigOptions, load, read_environment
from gateway.errors import ConfigError
from gateway.process.control_socket import MAX_LINE_BYTES, serve_control_socket
from platforms.core.contract import Live
from platforms.core.registry import load_specs
from tests.attack.ledger import Judge, Row, verdict
from tests.attack.stage import FILES, Till
from tests.attack.tricks import ADDRESS_TRICKS, OUTSIDE, PRIVATE_ADDRESSES, TOOL_NAMES
from tests.e2e.gateway_kit import Screen, gateway
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import ModelServer
from tests.fakes.shelf import Shelf, answer, leads_to

ROOT = Path(__file__).parents[2]
ME, VICTIM = "memory%3A1001", "telegram%3A1001"


class Alone:
    """A stage whose rows are judged at once."""

    async def settle(self) -> None:
        """See `tests.attack.ledger.Stage`."""

    def leaks(self) -> Iterable[tuple[str, str]]:
        """See `tests.attack.ledger.Stage`."""
        return ()


def _known(problem: str) -> Callable[[object], Awaitable[Judge]]:
    async def attempt(_: object) -> Judge:
        return verdict(problem)

    return attempt


# --- the border of the workspace -------------------------------------------------------------------

_TOOLS: dict[str, Callable[[str], dict[str, Any]]] = {
    "read_file": lambda path: {"path": path},
    "list_dir": lambda path: {"path": path, "depth": 3},
    "search_files": lambda path: {"path": path, "pattern": "canary|root:"},
    "send_file": lambda path: {"path": path},
    "edit_file": lambda path: {"path": path, "old": "canary", "new": "overwritten", "all": True},
    "write_file": lambda path: {"path": path, "content": "overwritten"},  # last: it makes files
}
_WRITING = {"edit_file", "write_file"}
_FOREIGN = (*FILES.values(), "root:x:0", "privatefile", "HOME=")


def lay_traps(home: Path) -> Path:
    """Make files of other people, and links to them in the attacker's workspace."""
    outside = home / "secret.txt"
    outside.write_text(FILES["outside"])
    victim = home / "workspace" / VICTIM
    victim.mkdir(parents=True)
    (victim / "private.txt").write_text(FILES["ann"])
    mine = home / "workspace" / ME
    (mine / "nested").mkdir(parents=True)
    (mine / "hard").mkdir()
    for name, target in {
        "link": home,
        "link_to_file": outside,
        "absolute_link": outside.absolute(),
        "chain": Path("link/workspace") / VICTIM,
        "loop": Path("loop"),
        "magic": Path("/proc/self"),
    }.items():
        (mine / name).symlink_to(target)
    os.mkfifo(mine / "pipe")
    return mine


class Caller:
    """A model that makes the given calls in one step, and then ends."""

    def __init__(self) -> None:
        self.wanted: list[tuple[str, str, str]] = []
        self.results: dict[str, str] = {}

    def __call__(self, body: dict[str, Any]) -> Script:
        for each in body["messages"]:
            if each["role"] == "tool":
                self.results[each["tool_call_id"]] = str(each["content"])
        wanted, self.wanted = self.wanted, []
        return calls(*wanted) if wanted else ok("done")


@contextlib.asynccontextmanager
async def calling(home: Path, tools: tuple[Tool, ...] = ()) -> AsyncIterator[Any]:
    """Run a gateway whose model makes calls for a member; yield a function that makes some."""
    caller = Caller()
    screen = Screen(live=Live.NONE, burst=1000)
    async with ModelServer(caller) as model, gateway(home, model, screen, tools=tools):

        async def make(wanted: list[tuple[str, str, str]]) -> dict[str, str]:
            caller.wanted, caller.results = wanted, {}
            before = len(screen.messages("1001"))
            await screen.say("1001", "go on")
            await screen.until(
                "1001",
                lambda shown: any(each.text == "done" for each in shown[before:]),
                seconds=60,
            )
            return caller.results

        yield make


def _harmless(path: str, home: Path) -> str:
    """Return a path with a file of the test in place of the system's file.

    A write that gets through must not damage the machine.
    """
    return path.replace("/etc/passwd", str((home / "secret.txt").absolute()))


async def workspace_rows(home: Path) -> list[Row]:
    """Try every path with every tool, and return the rows with their verdicts."""
    mine = lay_traps(home)
    rows = []
    async with calling(home) as make:
        for tool, arguments in _TOOLS.items():
            paths = [_harmless(path, home) if tool in _WRITING else path for path in OUTSIDE]
            wanted = [
                (f"{tool}{number}", tool, json.dumps(arguments(path)))
                for number, path in enumerate(paths)
            ]
            results = await make(wanted)
            for number, path in enumerate(paths):
                result = results.get(f"{tool}{number}", "no result")
                seen = [word for word in _FOREIGN if word in result]
                problem = f"shows {seen}" if seen else ""
                problem = problem or ("no result" if result == "no result" else "")
                sent = tool == "send_file" and "was sent" in result
                problem = problem or ("was sent" if sent else "")
                rows.append(Row("workspace", "path", f"{tool} {path[:60]!r}", _known(problem)))
    untouched = {
        home / "secret.txt": FILES["outside"],
        home / "workspace" / VICTIM / "private.txt": FILES["ann"],
    }
    for file, text in untouched.items():
        problem = "" if file.read_text() == text else "was overwritten"
        rows.append(Row("workspace", "file of others", file.name, _known(problem)))
    people = {each.name for each in (home / "workspace").iterdir()}
    rows.append(
        Row("workspace", "file of others", "new folders", _known(str(people - {ME, VICTIM} or "")))
    )
    links = [name for name in ("link", "link_to_file", "magic") if not (mine / name).is_symlink()]
    rows.append(Row("workspace", "file of others", "links", _known(str(links or ""))))
    return rows


async def name_rows(home: Path) -> list[Row]:
    """Call tools by names that do not exist, beside `pay`, which asks, and `unlock_door`."""
    till = Till()
    rows = []
    async with calling(home, (*till.tools(), till.door())) as make:
        for number, name in enumerate(TOOL_NAMES):
            results = await make([(f"n{number}", name, '{"to": "eve"}')])
            # Only letter case and the signs between words are repaired.
            meant = name.lower().replace("-", "_") in {"pay", "unlock_door"}
            asked = "approval" in results.get(f"n{number}", "approval")
            problem = ", ".join(till.ran) or ("asks for another tool" if asked else "")
            rows.append(
                Row("tool gate", "tool name", repr(name[:40]), _known("" if meant else problem))
            )
            till.ran.clear()
        for case, arguments in _ARGUMENTS.items():
            await make([("a1", "unlock_door", arguments)])
            rows.append(Row("tool gate", "arguments", case, _known(", ".join(till.ran))))
            till.ran.clear()
    return rows


_ARGUMENTS = {
    "cut": '{"to": "e',
    "another type": '{"to": 5}',
    "more keys": '{"to": "eve", "approved": true}',
    "deep": '{"to": ' + "[" * 5000 + "]" * 5000 + "}",
    "not JSON": "to=eve",
    "array": '["eve"]',
    "null": "null",
    "empty": "",
    "prefix": 'ok: {"to": "eve"}',
    "NaN": '{"to": NaN}',
}

# --- fetches ---------------------------------------------------------------------------------------


async def fetch_rows(
    addresses: Sequence[str] = PRIVATE_ADDRESSES, tricks: Sequence[str] = ADDRESS_TRICKS
) -> list[Row]:
    """Fetch every form of a private address: written, by DNS, and behind a redirect."""
    rows = []
    async with Shelf({"/": answer(b"fetched")}).open() as inner:
        near = FetchRules(extra_addresses=(("127.0.0.1", inner.port),))
        fetched = await Fetcher(near).get(f"http://127.0.0.1:{inner.port}/", 1000)
        assert fetched.content == b"fetched"
        rules = FetchRules(ports=(80, 443, inner.port))
        fetcher = Fetcher(rules, seconds=3)
        for address in addresses:
            url = f"http://{address}:{inner.port}/"
            rows.append(await _fetched(fetcher, inner, "address", url))
        rows += [await _fetched(fetcher, inner, "misread address", url) for url in tricks]
        for address in addresses:
            named = Fetcher(rules, resolve=_resolves_to(address.strip("[]")), seconds=3)
            url = f"http://rebind.example:{inner.port}/"
            rows.append(await _fetched(named, inner, "name of a private address", url, address))
        places = [f"http://{address}:{inner.port}/" for address in addresses]
        for url in (*places, *tricks):
            async with Shelf({"/": leads_to(url.replace("\r\n", "%0d%0a"))}).open() as outer:
                allowed = FetchRules(
                    ports=(80, 443, inner.port), extra_addresses=(("127.0.0.1", outer.port),)
                )
                first = f"http://127.0.0.1:{outer.port}/"
                rows.append(
                    await _fetched(Fetcher(allowed, seconds=3), inner, "redirect", first, url)
                )
    return rows


def _resolves_to(address: str) -> Callable[[str], Awaitable[list[str]]]:
    async def resolve(_: str) -> list[str]:
        return [address]

    return resolve


async def _fetched(fetcher: Fetcher, inner: Shelf, trick: str, url: str, case: str = "") -> Row:
    before = inner.met
    try:
        got = await fetcher.get(url, 1000)
        # A redirect that cannot be followed may be the answer itself, without the inner content.
        problem = f"fetched {got.url}" if b"fetched" in got.content else ""
    except FetchError:
        problem = ""
    problem = problem or ("was connected" if inner.met > before else "")
    return Row("fetches", trick, (case or url)[:80], _known(problem))


# --- the control socket ----------------------------------------------------------------------------

_NOBODY = 65534
_CLIENT = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as wire:
    try:
        wire.connect(sys.argv[1])
        wire.sendall(b'{"do": "pair_claim"}\\n')
        sys.stdout.write(wire.recv(65536).decode())
    except OSError as error:
        sys.stdout.write(f"refused: {error}")
"""

CONTROL_LINES: dict[str, bytes] = {
    "deep": b'{"do":"claim","args":{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}}\n",
    "not JSON": b"claim\n",
    "not UTF-8": b"\xff\xfe\n",
    "array": b"[]\n",
    "null": b"null\n",
    "no operation": b"{}\n",
    "unknown operation": b'{"do":"__class__"}\n',
    "private name": b'{"do":"_operations"}\n',
    "operation is a list": b'{"do":["claim"]}\n',
    "unknown argument": b'{"do":"claim","args":{"self":1}}\n',
    "arguments are a list": b'{"do":"claim","args":[1]}\n',
    "argument is a dunder": b'{"do":"claim","args":{"__class__":1}}\n',
    "too long": b"x" * (MAX_LINE_BYTES + 10) + b"\n",
    "HTTP request": b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "nothing": b"",
    "half a line": b'{"do":"claim"',
    "null bytes": b"\x00" * 100 + b"\n",
}


async def control_rows(home: Path) -> list[Row]:
    """Ask the control socket as another user, and in ways that it must survive."""
    claimed: list[str] = []

    async def claim() -> str:
        claimed.append("claimed")
        return "secret"

    rows = []
    path = home / "c.sock"
    async with serve_control_socket(path, {"claim": claim}):
        mode = stat.S_IMODE(path.stat().st_mode)
        rows.append(
            Row(
                "control socket", "file mode", oct(mode), _known("" if mode == 0o600 else oct(mode))
            )
        )
        for case, line in CONTROL_LINES.items():
            said = await _ask_socket(path, line)
            alive = b'"secret"' in await _ask_socket(path, b'{"do":"claim"}\n')
            problem = "" if alive else "no answer afterwards"
            problem = problem or ("ran" if b'"secret"' in said else "")
            rows.append(Row("control socket", "bad line", case, _known(problem)))
    others = home / "o.sock"
    async with serve_control_socket(others, {"claim": claim}, users=frozenset({os.geteuid() + 1})):
        claimed.clear()
        said = await _ask_socket(others, b'{"do":"claim"}\n')
        problem = "ran" if claimed or b"secret" in said else ""
        rows.append(Row("control socket", "another user", "identity of the peer", _known(problem)))
    if os.geteuid() == 0:
        rows.append(await _as_nobody(home))
    return rows


async def _as_nobody(home: Path) -> Row:
    claimed: list[str] = []

    async def pair_claim() -> str:
        claimed.append("claimed")
        return "secret"

    path = home / "n.sock"
    async with serve_control_socket(path, {"pair_claim": pair_claim}):
        for folder in (home, *home.parents):
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
                    folder.chmod(folder.stat().st_mode | 0o011)
        path.chmod(0o666)
        words = (sys.executable, "-c", _CLIENT, str(path), str(_NOBODY))
        done = await asyncio.to_thread(
            subprocess.run, words, capture_output=True, text=True, check=False, timeout=20
        )
    problem = "ran" if claimed or "secret" in done.stdout else ""
    problem = problem or (
        "" if "Only the user" in done.stdout else f"said {done.stdout}{done.stderr}"
    )
    return Row("control socket", "another user", "uid 65534, mode 0666", _known(problem))


async def _ask_socket(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    with contextlib.suppress(ConnectionError):
        writer.write(line)
        await writer.drain()
        writer.write_eof()
    said = b""
    with contextlib.suppress(ConnectionError):
        said = await reader.read()
    writer.close()
    return said


# --- the configuration file ------------------------------------------------------------------------

_PROGRAM = '[[mcp]]\nname = "evil"\ncommand = "touch"\nargs = ["PWNED"]\n'

CONFIGS: dict[str, str] = {
    "unknown key": '[model]\nprovider = "demo"\nevil = 1\n',
    "unknown table": "[evil]\nx = 1\n",
    "wrong type": '[access]\nallow = "telegram:*"\n',
    "a name in the list": '[access]\nallow = ["telegram:@chief"]\n',
    "everybody as admin": '[access]\nadmins = ["telegram:*"]\n',
    "a star inside": '[access]\nallow = ["telegram:10*"]\n',
    "public port without a key": '[http]\nhost = "0.0.0.0"\n',
    "line break in the key": '[http]\napi_key = "a\\nX-Evil: 1"\n',
    "not UTF-8": "\udcff",
    "deep": "x = " + "[" * 5000 + "]" * 5000 + "\n",
    "not TOML": "<xml/>\n",
}
"""Files that must be refused."""


async def config_rows(home: Path) -> list[Row]:
    """Read hostile files, and start in a folder with a `holdfast.toml` that starts a program."""
    rows = [_read_config(home, case, text) for case, text in CONFIGS.items()]
    folders = {"starts a program": False}
    if os.geteuid() == 0:
        folders["belongs to another user"] = True
    for case, foreign in folders.items():
        folder = home / case
        folder.mkdir()
        file = folder / "holdfast.toml"
        file.write_text("" if foreign else _PROGRAM)
        if foreign:
            os.chown(file, _NOBODY, _NOBODY)
        code, said = await asyncio.to_thread(_start_in, folder)
        problem = "" if code == ConfigError.exit_code else f"exit {code}: {said[-200:]}"
        problem = problem or ("started a program" if (folder / "PWNED").exists() else "")
        rows.append(Row("configuration", "found file", case, _known(problem)))
    return rows


def _read_config(home: Path, case: str, text: str) -> Row:
    path = home / "hostile.toml"
    path.write_text(text, errors="surrogateescape")
    environ = {"HOME": str(home), "HOLDFAST_HOME": str(home / "state")}
    try:
        load(ConfigOptions(config=path), environ, load_specs())
        problem = "was accepted"
    except ConfigError:
        problem = ""
    return Row("configuration", "hostile file", case, _known(problem))


def _start_in(folder: Path) -> tuple[int, str]:
    environ = {
        name: value
        for name, value in read_environment().items()
        if not name.startswith(("HOLDFAST", "OPENAI", "ANTHROPIC", "XDG"))
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from gateway.operate.cli import main; main()", "run"],
            cwd=folder,
            env={
                **environ,
                "PYTHONPATH": str(ROOT),
                "HOME": str(folder),
                "HOLDFAST_HOME": str(folder / "state"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except subprocess.TimeoutExpired:
        return 0, "it runs"
    return done.returncode, done.stdout + done.stderr
