"""The HTTP port: keys, cookies, hosts, origins, bodies and raw requests."""

import asyncio
import contextlib
import io
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.routing import Route

from tests.attack.ledger import Judge, Row, held, passed, verdict
from tests.attack.obedient import call
from tests.attack.stage import HTTP_KEY, PRIVATE, Gate
from tests.attack.tricks import OUTSIDE

OPEN = {"/", "/enter/{token}", "/web/static/{name}", "/livez", "/readyz", "/openapi.json"}
WEBHOOKS = {"/telegram", "/slack/events"}
_VALUES = {"{chat}": "chat1", "{seq:int}": "1", "{place:int}": "0", "{name:path}": "demo"}
CSRF = "X-Holdfast-CSRF"
_SMALL = 400  # first status that is no success
_SLASH = 307  # to the same path without its last slash
_CLOSE = "Connection: close\r\n"
_LONG = 120  # characters of a case's name

GUESSES: dict[str, dict[str, str]] = {
    "nothing": {},
    "another key": {"Authorization": f"Bearer {HTTP_KEY[:-1]}x"},
    "prefix of the key": {"Authorization": f"Bearer {HTTP_KEY[:-1]}"},
    "the key and more": {"Authorization": f"Bearer {HTTP_KEY}0"},
    "upper case": {"Authorization": f"Bearer {HTTP_KEY.upper()}"},
    "empty key": {"Authorization": "Bearer "},
    "no scheme": {"Authorization": "Bearer"},
    "null": {"Authorization": "Bearer null"},
    "not ASCII": {"Authorization": "Bearer ключ"},
    "basic": {"Authorization": "Basic YWRtaW46YWRtaW4="},
    "forwarded for this machine": {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1"},
    "forwarded user": {"X-Forwarded-User": "owner", "X-Remote-User": "web:owner"},
    "rewritten address": {"X-Original-URL": "/livez", "X-Rewrite-URL": "/livez"},
    "another method": {"X-HTTP-Method-Override": "OPTIONS"},
    "unknown cookie": {"Cookie": "holdfast_00000000=" + "x" * 43},
    "cookie of the key": {"Cookie": "holdfast=1; api_key=1; session=owner"},
}
"""Requests without key and cookie."""

DETOURS = (
    "//v1/models",
    "/v1//models",
    "/V1/models",
    "/v1/models/",
    "/./v1/models",
    "/livez/../v1/models",
    "/livez/..;/v1/models",
    "/livez%2f..%2fv1%2fmodels",
    "/web/static/../../v1/models",
    "/web/static/..%2f..%2fv1%2fmodels",
    "/v1/models%00",
    "/v1/models;x",
    "/%76%31/models",
    "/enter/../metrics",
    "/metrics/",
    "/METRICS",
    "/metrics%20",
    "/readyz/../metrics",
    "/web/chats/",
    "/web/static/%2e%2e/door.py",
    "/web/static/..%5cdoor.py",
    "/web/static//etc/passwd",
    "/web/static/index.html",
    "/web/static/app.js%00.html",
    "/web/static/....//door.py",
    "/.env",
    "/holdfast.db",
    "/api_key",
    "/enter/",
    "/enter/x",
    "/enter/%00",
    "/enter/" + "x" * 5000,
)
"""Paths that try to reach a protected route, or a file, without a key."""

HOSTS = (
    "evil.example",
    "evil.example:8420",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.example#127.0.0.1",
    "evil.example@127.0.0.1",
    "127.0.0.1@evil.example",
    "127.0.0.1, evil.example",
    "0.0.0.0",  # noqa: S104 - a header
    "127.1",
    "2130706433",
    "[::ffff:127.0.0.1]",
    "169.254.169.254",
    "bot.example.org",
    "",
    "*",
    "x" * 300,
)
"""Host headers of a page that rebound its name to this machine."""

ORIGINS = (
    "https://evil.example",
    "null",
    "http://127.0.0.1:1",
    "http://localhost",
    "https://127.0.0.1.evil.example",
    "http://127.0.0.1@evil.example",
    "file://",
    "http://[::1]:1",
    "chrome-extension://abc",
    "",
)
"""Origins of a script of another site."""


def _row(door: str, trick: str, case: str, attempt: Callable[[Gate], Awaitable[Judge]]) -> Row:
    return Row(door, trick, case[:_LONG], attempt)


async def ask(gate: Gate, method: str, path: str, **more: Any) -> tuple[int, str]:
    """Send a request without any key; return status and body, which must not hold a canary."""
    url = path if path.startswith("http") else gate.url + path
    more.setdefault("allow_redirects", False)
    async with gate.http.request(method, url, **more) as answer:
        body = await answer.text(errors="replace")
        gate.answers.append((f"{method} {path[:60]}", body + str(answer.headers)))
        return answer.status, body


def routes(gate: Gate) -> Iterable[tuple[str, str]]:
    """Yield method and path of every protected route."""
    assert gate.runner._open
    assert gate.runner._open.app
    for route in gate.runner._open.app.routes:
        assert isinstance(route, Route)
        if route.path in OPEN | WEBHOOKS:
            continue
        path = route.path
        for name, value in _VALUES.items():
            path = path.replace(name, value)
        path = re.sub(r"\{\w+\}", "x", path)
        for method in sorted(route.methods or ()):
            yield method, path


# --- without a key ---------------------------------------------------------------------------------


def without_a_key(gate: Gate) -> Iterable[Row]:
    """Every protected route with every guess, and detours."""
    for method, path in routes(gate):
        door = "page" if path.startswith("/web/") else "API and metrics"
        for case, headers in GUESSES.items():
            yield _row(
                door, "guessed key", f"{method} {path}, {case}", _refused(method, path, headers)
            )
        query = f"{path}?api_key={HTTP_KEY[:-1]}&token=x&csrf=x"
        yield _row(door, "key in the query", f"{method} {path}", _refused(method, query, {}))
    for path in DETOURS:
        yield _row("API and metrics", "detour", path, _no_detour(path))
    for host in HOSTS:
        yield _row("page", "foreign host", repr(host[:40]), _foreign_host(host))
    yield _row("page", "WebSocket", "upgrade without a cookie", _websocket)


def _refused(method: str, path: str, headers: dict[str, str]) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        status, _ = await ask(gate, method, path, headers=headers)
        return verdict("" if status == 401 else f"status {status}")

    return attempt


def _no_detour(path: str) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        answer = await raw(gate, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{_CLOSE}\r\n".encode())
        gate.answers.append((f"GET {path[:60]}", answer.decode(errors="replace")))
        refused = status_of(answer) >= _SMALL or status_of(answer) == _SLASH
        return verdict("" if refused else f"status {status_of(answer)}")

    return attempt


def _foreign_host(host: str) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        request = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        status = status_of(await raw(gate, request))
        return verdict("" if status in {400, 403} else f"status {status}")

    return attempt


async def _websocket(gate: Gate) -> Judge:
    headers = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    request = f"GET /web/chats/chat1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}{key}\r\n"
    status = status_of(await raw(gate, request.encode()))
    return verdict("" if status >= _SMALL else f"status {status}")


# --- with the owner's cookie, from another site ----------------------------------------------------


class Owner:
    """The owner's browser."""

    def __init__(self, gate: Gate, cookie: str, csrf: str) -> None:
        self.gate = gate
        self.cookie = {"Cookie": cookie}
        self.csrf = csrf
        self.path = f"/web/chats/{CHAT}"

    @property
    def all(self) -> dict[str, str]:
        """Headers of the page itself."""
        return {**self.cookie, CSRF: self.csrf}


CHAT = "chat1"


async def sign_in(gate: Gate) -> Owner:
    """Open the printed link."""
    link = str(await gate.runner.operations["link"](base_url=None))
    async with gate.http.get(link, allow_redirects=False) as answer:
        assert answer.status == 303
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
    async with gate.http.get(f"{gate.url}/web/session", headers={"Cookie": cookie}) as answer:
        owner = Owner(gate, cookie, (await answer.json())["csrf"])
    gate.http.cookie_jar.clear()
    return owner


def across_sites(gate: Gate, owner: Owner, other: Owner) -> Iterable[Row]:
    """Requests that a script of another site makes the owner's browser send."""
    changing = [
        (method, path)
        for method, path in routes(gate)
        if path.startswith("/web/") and method not in {"GET", "HEAD"}
    ]
    forged = {
        "no token": {},
        "empty token": {CSRF: ""},
        "guessed token": {CSRF: "0" * 64},
        "token of another visit": {CSRF: other.csrf},
        "token in upper case": {CSRF: owner.csrf.upper()},
        "beginning of the token": {CSRF: owner.csrf[:-1]},
        "the cookie as token": {CSRF: owner.cookie["Cookie"].partition("=")[2]},
        "token in a cookie": {"Cookie": f"{owner.cookie['Cookie']}; csrf={owner.csrf}"},
    }
    for method, path in changing:
        for case, headers in forged.items():
            sent = {**owner.cookie, **headers}
            yield _row(
                "page",
                "forged request",
                f"{method} {path}, {case}",
                _status(method, path, sent, 403),
            )
        for origin in ORIGINS:
            sent = {**owner.all, "Origin": origin}
            yield _row(
                "page",
                "foreign origin",
                f"{method} {path}, {origin}",
                _status(method, path, sent, 403),
            )
    for path in ("/web/chats", f"{owner.path}/rows", f"{owner.path}/events", "/web/session"):
        for host in HOSTS[:8]:
            sent = {**owner.cookie, "Host": host}
            yield _row(
                "page", "rebound host", f"{path}, {host[:40]}", _status("GET", path, sent, 403, 400)
            )
        for origin in ORIGINS[:4]:
            sent = {**owner.cookie, "Origin": origin}
            yield _row(
                "page", "foreign origin", f"GET {path}, {origin}", _status("GET", path, sent, 403)
            )


def _status(
    method: str, path: str, headers: dict[str, str], *wanted: int
) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        body = (
            '{"id":"forged-1","text":"CALL pay {} END","action":"stop"}'
            if method == "POST"
            else None
        )
        sent = {**headers, "Content-Type": "text/plain"} if body else headers
        status, _ = await ask(gate, method, path, headers=sent, data=body)
        return verdict("" if status in wanted else f"status {status}")

    return attempt


def sessions(owner: Owner, spent: str) -> Iterable[Row]:
    """Links and cookies that are used up, ended or made up."""

    async def spent_link(gate: Gate) -> Judge:
        status, _ = await ask(gate, "GET", spent)
        return verdict("" if status == 403 else f"status {status}")

    async def previewed_link(gate: Gate) -> Judge:
        link = str(await gate.runner.operations["link"](base_url=None))
        status, _ = await ask(gate, "HEAD", link)
        first, _ = await ask(gate, "GET", link)
        again, _ = await ask(gate, "GET", link)
        return verdict(
            "" if (status, first, again) == (200, 303, 403) else f"{status} {first} {again}"
        )

    async def ended_visit(gate: Gate) -> Judge:
        ended = await sign_in(gate)
        status, _ = await ask(gate, "DELETE", "/web/session", headers=ended.all)
        after, _ = await ask(gate, "GET", "/web/chats", headers=ended.cookie)
        return verdict("" if (status, after) == (204, 401) else f"{status} {after}")

    async def other_name(gate: Gate) -> Judge:
        value = owner.cookie["Cookie"].partition("=")[2]
        for name in ("holdfast", "holdfast_", "HOLDFAST_00000000", "__Host-holdfast"):
            status, _ = await ask(gate, "GET", "/web/chats", headers={"Cookie": f"{name}={value}"})
            if status != 401:
                return passed(f"{name}: {status}")
        return held

    async def key_as_cookie(gate: Gate) -> Judge:
        name = owner.cookie["Cookie"].partition("=")[0]
        status, _ = await ask(gate, "GET", "/web/chats", headers={"Cookie": f"{name}={HTTP_KEY}"})
        return verdict("" if status == 401 else f"status {status}")

    async def cookie_as_key(gate: Gate) -> Judge:
        value = owner.cookie["Cookie"].partition("=")[2]
        headers = {"Authorization": f"Bearer {value}", **owner.cookie}
        status, _ = await ask(gate, "GET", "/v1/models", headers=headers)
        return verdict("" if status == 401 else f"status {status}")

    for case, attempt in {
        "a link twice": spent_link,
        "a link after a preview": previewed_link,
        "a cookie after signing out": ended_visit,
        "another cookie name": other_name,
        "the API key as cookie": key_as_cookie,
        "the cookie as API key": cookie_as_key,
    }.items():
        yield _row("page", "stolen visit", case, attempt)


def downloads(owner: Owner) -> Iterable[Row]:
    """File routes of the page, with the owner's cookie and token."""
    for path in OUTSIDE:
        ref = path[:80]
        yield _row("attachments", "path as a reference", repr(ref), _bad_reference(owner, ref))
    kinds = ("text/html", "image/svg+xml", "application/xhtml+xml", "text/xml", "image/png\n",
             "text/html;charset=x", "image/png\r\nX-Evil: 1", "*/*", "javascript")  # fmt: skip
    for kind in kinds:
        yield _row("attachments", "dangerous type", repr(kind), _harmless(owner, kind, "a.html"))
    for name in (
        'a"; filename="b.html',
        "a\r\nX-Evil: 1",
        "../../a.html",
        "\u202elmth.a",
        "%0d%0a",
    ):
        yield _row("attachments", "dangerous name", repr(name), _harmless(owner, "text/html", name))
    for seq, place in ((1, 5), (99999999, 0), (0, 0), (2**63, 0), (1, 2**63)):
        path = f"/web/chats/other/files/{seq}/{place}"
        yield _row("attachments", "file of another chat", f"{seq}/{place}", _not_there(owner, path))


def _bad_reference(owner: Owner, ref: str) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        file = {"ref": ref, "name": "a.txt", "type": "text/plain"}
        body = {"id": f"id-{mark}", "text": mark, "files": [file]}
        status, _ = await ask(gate, "POST", f"{owner.path}/messages", headers=owner.all, json=body)
        return verdict("" if status == 400 else f"status {status}")

    return attempt


def _not_there(owner: Owner, path: str) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        status, _ = await ask(gate, "GET", path, headers=owner.cookie)
        return verdict("" if status == 404 else f"status {status}")

    return attempt


def _harmless(owner: Owner, kind: str, name: str) -> Callable[[Gate], Awaitable[Judge]]:
    """A file is refused, or offered as a download that can run nothing."""

    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        html = b"<script>alert(1)</script>"
        _, body = await ask(gate, "POST", f"{owner.path}/files", headers=owner.all, data=html)
        ref = re.findall(r"[a-f0-9]{32}", body)[0]
        file = {"ref": ref, "name": name, "type": kind}
        body_json = {"id": f"id-{mark}", "text": mark, "files": [file]}
        status, _ = await ask(
            gate, "POST", f"{owner.path}/messages", headers=owner.all, json=body_json
        )
        if status == 400:
            return held
        async with gate.http.get(f"{gate.url}{owner.path}/rows", headers=owner.cookie) as told:
            found = [each for each in (await told.json())["rows"] if mark in str(each.get("text"))]
        url = f"{gate.url}{owner.path}/files/{found[-1]['seq']}/0"
        async with gate.http.get(url, headers=owner.cookie) as answer:
            shown = answer.headers
            safe = (
                shown.get("Content-Disposition", "").startswith("attachment")
                and "sandbox" in shown.get("Content-Security-Policy", "")
                and shown.get("X-Content-Type-Options") == "nosniff"
                and "X-Evil" not in shown
            )
            return verdict("" if safe else f"served with {dict(shown)}")

    return attempt


# --- bodies ----------------------------------------------------------------------------------------

_DEEP = 50_000
BODIES: dict[str, bytes] = {
    "deep arrays": b"[" * _DEEP + b"]" * _DEEP,
    "deep objects": b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    "deep in a field": b'{"messages":' + b"[" * _DEEP + b"]" * _DEEP + b"}",
    "cut": b'{"messages": [',
    "not UTF-8": b'{"messages": "\xff\xfe"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "lone surrogate": b'{"messages": "\\ud800"}',
    "not a number": b'{"messages": NaN}',
    "infinite": b'{"temperature": 1e999}',
    "huge number": b'{"max_tokens": ' + b"9" * 5000 + b"}",
    "null": b"null",
    "number": b"1",
    "text": b'"x"',
    "array": b"[]",
    "empty": b"",
    "blank": b" " * 1000,
    "nul": b"\x00" * 100,
    "many keys": b"{" + b",".join(b'"k%d":1' % key for key in range(20_000)) + b"}",
    "same key twice": b'{"messages": [], "messages": 1}',
    "prototype": b'{"__proto__": {"admin": true}, "constructor": 1}',
    "form": b"payload=%7B%7D&text=x",
    "multipart": b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n',
    "XML entity": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
    "pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.",
}
"""Bodies that must be refused at once."""


def bodies(owner: Owner) -> Iterable[Row]:
    """Bad bodies at every route that reads one."""
    key = {"Authorization": f"Bearer {HTTP_KEY}"}
    places = {
        "API": ("/v1/chat/completions", key),
        "API, responses": ("/v1/responses", key),
        "page": (f"{owner.path}/messages", owner.all),
        "page, buttons": (f"{owner.path}/actions", owner.all),
    }
    for door, (path, headers) in places.items():
        for case, body in BODIES.items():
            yield _row(door, "bad body", case, _bad_body(path, headers, body))
    for door in ("API", "page"):
        path, headers = places[door]
        yield _row(door, "bad body", "17 MB", _bad_body(path, headers, b"x" * 17_000_000))


def _bad_body(
    path: str, headers: dict[str, str], body: bytes
) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        sent = {**headers, "Content-Type": "application/json"}
        status, answer = await ask(gate, "POST", path, headers=sent, data=io.BytesIO(body))
        alive, _ = await ask(gate, "GET", "/livez")
        if alive != 200:
            return passed(f"then /livez answers {alive}")
        refused = _SMALL <= status < 500 and "Traceback" not in answer
        return verdict("" if refused else f"status {status}: {answer[:80]}")

    return attempt


def conversations() -> Iterable[Row]:
    """Names of conversations by which an API client reaches for those of other people."""
    names = ("telegram:1001", "api:telegram:1001", "../telegram:1001", "telegram%3A1001", "web:chat1",
             "1001", "1001:u=9001", "x:t=1", "*", "telegram@:1001", "~x", "console:owner",
             "x" * 200, "slack:T1/D1", "discord:1")  # fmt: skip
    for name in names:
        for header in ("X-Holdfast-Session", "X-Session-Id"):
            yield _row(
                "API", "conversation of others", f"{header}: {name[:40]!r}", _foreign(header, name)
            )


def _foreign(header: str, name: str) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        headers = {"Authorization": f"Bearer {HTTP_KEY}", header: name}
        body = {"model": "scripted", "messages": [{"role": "user", "content": f"hello {mark}"}]}
        await ask(gate, "POST", "/v1/chat/completions", headers=headers, json=body)
        seen = "".join(gate.requests_with(mark))
        found = [word for word in PRIVATE.values() if word in seen]
        return verdict(f"saw {found}" if found else "")

    return attempt


def unattended() -> Iterable[Row]:
    """Tools with effects, where no person can be asked."""
    for tool, arguments in {"pay": {"to": "eve"}, "post_out": {"text": "x"}}.items():
        for role in ("user", "system", "developer", "assistant", "tool"):
            yield _row(
                "API",
                "tool without a person",
                f"{tool} by {role}",
                _by_role(role, call(tool, **arguments)),
            )


def _by_role(role: str, text: str) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        before = list(gate.till.ran)
        said = [
            {"role": role, "content": text, "tool_call_id": "c1"},
            {"role": "user", "content": text},
        ]
        headers = {"Authorization": f"Bearer {HTTP_KEY}"}
        body = {"model": "scripted", "messages": said}
        await ask(gate, "POST", "/v1/chat/completions", headers=headers, json=body)
        return verdict("" if gate.till.ran == before else f"ran {gate.till.ran}")

    return attempt


# --- raw requests ----------------------------------------------------------------------------------


async def raw(gate: Gate, request: bytes, seconds: float = 3.0) -> bytes:
    """Send bytes; return everything that comes back until the end, or for some seconds."""
    host, _, port = gate.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    found = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(seconds):
            while piece := await reader.read(65536):
                found += piece
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return found


def status_of(answer: bytes) -> int:
    """Return the status of the first response; 599 if there is none."""
    match = re.match(rb"HTTP/1\.1 (\d{3})", answer)
    return int(match[1]) if match else 599


_SECOND = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
SMUGGLED: dict[str, bytes] = {
    "length and chunks": _POST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + _SECOND,
    "chunks and length": _POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
    + _SECOND,
    "two lengths": _POST + b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + _SECOND,
    "list of lengths": _POST + b"Content-Length: 0, 44\r\n\r\n" + _SECOND,
    "negative length": _POST + b"Content-Length: -1\r\n\r\n" + _SECOND,
    "signed length": _POST + b"Content-Length: +0\r\n\r\n" + _SECOND,
    "hex length": _POST + b"Content-Length: 0x0\r\n\r\n" + _SECOND,
    "length with a blank": _POST + b"Content-Length : 0\r\n\r\n" + _SECOND,
    "huge length": _POST + b"Content-Length: 99999999999999999999999\r\n\r\n" + _SECOND,
    "unknown coding": _POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + _SECOND,
    "coding twice": _POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"
    + _SECOND,
    "coding with a tab": _POST
    + b"Transfer-Encoding:\tchunked, identity\r\n\r\n0\r\n\r\n"
    + _SECOND,
    "coding in quotes": _POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n' + _SECOND,
    "bad chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n" + _SECOND,
    "negative chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + _SECOND,
    "huge chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + _SECOND,
    "null in a header": b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n" + _SECOND,
    "return in a header": b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\rb\r\n\r\n" + _SECOND,
    "two hosts": b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n" + _SECOND,
    "two hosts, other order": b"GET /readyz HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1\r\n\r\n"
    + _SECOND,
    "no host": b"GET /readyz HTTP/1.1\r\n\r\n" + _SECOND,
    "line break in the path": b"GET /readyz\r\nX: 1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + _SECOND,
    "blank in the path": b"GET /readyz /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + _SECOND,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "64 KB of headers": b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
    + b"x" * 65536
    + b"\r\n\r\n"
    + _SECOND,
    "5,000 headers": b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    + b"X: 1\r\n" * 5000
    + b"\r\n"
    + _SECOND,
    "64 KB of path": b"GET /" + b"x" * 65536 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + _SECOND,
    "garbage": b"\x00\xff" * 500 + b"\r\n\r\n" + _SECOND,
}
"""Requests that two programs may read differently, each with a second request behind it."""

REFUSED: dict[str, bytes] = {
    "folded header": _POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + _SECOND,
    "absolute address": b"GET http://evil.example/readyz HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    + _SECOND,
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SECOND,
    "tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n" + _SECOND,
}
"""Requests that are refused, although the next one on the connection may be answered."""


def smuggled() -> Iterable[Row]:
    """Ambiguous requests are refused, and the bytes behind them are never a request."""
    for case, request in REFUSED.items():
        yield _row("raw HTTP", "odd request", case, _odd_refused(request))
    for case, request in SMUGGLED.items():
        yield _row("raw HTTP", "smuggled request", case, _not_smuggled(request))


def _not_smuggled(request: bytes) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        answer = await raw(gate, request)
        count = answer.count(b"HTTP/1.1 ")
        if b'"ready"' in answer or count > 1:
            return passed(f"{count} answers, the first {status_of(answer)}")
        return verdict("" if status_of(answer) >= _SMALL else f"status {status_of(answer)}")

    return attempt


def _odd_refused(request: bytes) -> Callable[[Gate], Awaitable[Judge]]:
    async def attempt(gate: Gate) -> Judge:
        answer = await raw(gate, request)
        return verdict("" if status_of(answer) >= _SMALL else f"status {status_of(answer)}")

    return attempt
