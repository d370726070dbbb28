"""What the fuzz of the API sends: requests that are right, nearly right, and nothing of the kind.

Everything is bytes, since most of it no library would send. A case comes from a seed and a number.
"""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

KEY = "key-of-the-api"
SLOW = "slowly"
"""Whoever says this is answered in pieces."""

Leaves = Literal["answered", "half", "sent", "begun", "eof"]
"""When the client goes: with its answer; in the middle of sending; once it has sent all; with the
first piece of an answer; or it says that it has no more to send, and still listens."""

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
PNG = "data:image/png;base64,iVBORw0KGgo="
LARGE = 16_777_216
"""Bytes of a body, of which no more are taken."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One connection of a client."""

    kind: str
    name: str
    sent: tuple[bytes, ...]
    leaves: Leaves = "answered"
    answers: int = 1  # that are waited for
    good: str = ""  # it must be answered well, with these words
    path: str = ""  # of the document: its statuses and shapes are known
    method: str = ""

    def __repr__(self) -> str:
        return f"{self.kind}: {self.name}"


class Cases:
    """All cases of a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        weights = {
            self._good: 24,
            self._changed: 32,
            self._raw: 7,
            self._headers: 17,
            self._addresses: 9,
            self._together: 4,
            self._leaving: 7,
        }
        self._makers: list[Callable[[], Case]] = list(weights)
        self._weights = list(weights.values())

    def __getitem__(self, number: int) -> Case:
        self.dice = random.Random(f"{self._seed} {number}")  # noqa: S311 - to be repeated
        self.number = number
        if number % 10 == 0:
            return self._good()
        (maker,) = self.dice.choices(self._makers, self._weights)
        return maker()

    # --- right ---------------------------------------------------------------------------------

    def _good(self) -> Case:
        path = self.dice.choice([CHAT] * 6 + [RESPONSES] * 3 + list(READS))
        if path in READS:
            return Case(
                kind="good", name=f"get {path}", sent=(request("GET", path),),
                good=READS[path], path=_described(path), method="get",
            )  # fmt: skip
        body, how = self._body(path), []
        more: list[tuple[str, str]] = []
        if self.dice.random() < 0.3:
            body["stream"] = True
            how.append("stream")
        if self.dice.random() < 0.3:
            more.append(("X-Session-Id", f"fuzz:{self.number % 50}/{self.number}"))
            how.append("session")
        if self.dice.random() < 0.2:
            more.append(("Idempotency-Key", f"key {self.number}"))
            how.append("key")
        sent = request("POST", path, json.dumps(body).encode(), *more)
        return Case(
            kind="good", name=" ".join([path, *how]), sent=_cut(sent, self.dice),
            good="fine", path=path, method="post",
        )  # fmt: skip

    def _body(self, path: str) -> dict[str, Any]:
        """A body with much in it that may be changed."""
        text = self.dice.choice(["hi", "Grüße 🌍", "a\0b", "x" * 5000, "/stop", "  hi  "])
        pictures = self.dice.random() < 0.2
        if path == RESPONSES:
            body = self._asking(text, pictures=pictures)
        else:
            body = self._messages(text, pictures=pictures)
        for name, value in MORE[path].items():
            if self.dice.random() < 0.3:
                body[name] = copy.deepcopy(value)
        return body

    def _messages(self, text: str, *, pictures: bool) -> dict[str, Any]:
        earlier = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "it rains", "tool_call_id": "c1"},
            {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
        ]
        parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": PNG}}]
        last = {"role": "user", "content": parts if pictures else text}
        return {"messages": copy.deepcopy([*earlier[: self.dice.choice([0, 0, 1, 5])], last])}

    def _asking(self, text: str, *, pictures: bool) -> dict[str, Any]:
        parts = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": PNG}]
        last = {"role": "user", "content": parts if pictures else text}
        return {"input": self.dice.choice([text, [last]]) if not pictures else [last]}

    # --- nearly right --------------------------------------------------------------------------

    def _changed(self) -> Case:
        path = self.dice.choice([CHAT, CHAT, RESPONSES])
        body = self._body(path)
        done = [change(body, self.dice) for _ in range(self.dice.choice([1, 1, 2, 3]))]
        text = json.dumps(body)
        written, how = self._written(text)
        more = [("X-Session-Id", f"odd{self.number}")] if self.dice.random() < 0.3 else []
        return Case(
            kind="changed", name=f"{path} {', '.join([*done, how])}",
            sent=(request("POST", path, written, *more),), path=path, method="post",
        )  # fmt: skip

    def _written(self, text: str) -> tuple[bytes, str]:
        """A body as bytes, mostly as it should be."""
        dice = self.dice
        if dice.random() < 0.6:
            return text.encode(), "well written"
        name = dice.choice(list(WRITTEN))
        if name in {"very long", "too long"} and dice.random() > RARE[name]:
            name = "cut off"
        return WRITTEN[name](text, dice), name

    # --- nothing of the kind -------------------------------------------------------------------

    def _raw(self) -> Case:
        noise = self.dice.randbytes(self.dice.choice([0, 1, 7, 200, 5000]))
        if self.dice.random() < 0.5:
            path = self.dice.choice([CHAT, RESPONSES])
            return Case(
                kind="raw", name=f"{len(noise)} bytes as a body", sent=(request("POST", path, noise),),
                path=path, method="post",
            )  # fmt: skip
        lines = self.dice.choice([noise, noise + b"\r\n\r\n", b"\x16\x03\x01" + noise, *RAW])
        return Case(kind="raw", name=f"{lines[:20]!r}", sent=(lines,), leaves="eof")

    def _headers(self) -> Case:
        name = self.dice.choice(list(ODD))
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
        sent, complete = ODD[name](body, self.dice)
        return Case(
            kind="headers", name=name, sent=(sent,), leaves="answered" if complete else "eof"
        )

    def _addresses(self) -> Case:
        method = self.dice.choice(METHODS)
        path = self.dice.choice(PATHS)
        body = b"{}" if method in {"POST", "PUT", "PATCH"} else b""
        return Case(
            kind="addresses", name=f"{method} {path[:60]}", sent=(request(method, path, body),),
            method=method.lower(),
        )  # fmt: skip

    def _together(self) -> Case:
        """Several requests at once, the last of which closes; garbage may stand behind them."""
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
        some = [
            request("GET", "/v1/models", closes=False),
            request("POST", CHAT, body, closes=False),
            request("POST", CHAT, b"{", closes=False),
            request("GET", "/nowhere", closes=False),
        ]
        chosen = self.dice.choices(some, k=self.dice.randrange(1, 5))
        if self.dice.random() < 0.3:
            noise = self.dice.randbytes(40) + b"\r\n\r\n"
            return Case(
                kind="together", name="garbage behind", sent=(b"".join([*chosen, noise]),),
                answers=len(chosen) + 1,
            )  # fmt: skip
        last = request("POST", CHAT, body)
        return Case(
            kind="together", name=f"{len(chosen) + 1} requests", sent=(b"".join([*chosen, last]),),
            answers=len(chosen) + 1,
        )  # fmt: skip

    def _leaving(self) -> Case:
        leaves: Leaves = self.dice.choice(["half", "sent", "begun", "begun", "eof"])
        path = self.dice.choice([CHAT, CHAT, RESPONSES])
        text = f"{self.dice.choice(['hang', SLOW])} {self.number}"
        body: dict[str, Any] = {"stream": self.dice.random() < 0.7 or leaves == "begun"}
        body |= (
            {"input": text}
            if path == RESPONSES
            else {"messages": [{"role": "user", "content": text}]}
        )
        more = [("X-Session-Id", f"left{self.number % 20}")] if self.dice.random() < 0.3 else []
        sent = request("POST", path, json.dumps(body).encode(), *more)
        if leaves == "half":
            sent = sent[: self.dice.randrange(len(sent))]
        return Case(kind="leaving", name=f"{leaves} {text} {path}", sent=(sent,), leaves=leaves)


# --- tables ------------------------------------------------------------------------------------

READS = {
    "/v1/models": '"scripted"',
    "/v1/models/scripted": '"scripted"',
    "/livez": "ok",
    "/readyz": '"ready":true',
    "/metrics": "holdfast_build_info",
    "/openapi.json": '"openapi":"3.1.0"',
}
CALL = {"id": "c1", "type": "function", "function": {"name": "rain", "arguments": "{}"}}
MORE: dict[str, dict[str, Any]] = {
    CHAT: {
        "model": "scripted",
        "max_tokens": 200,
        "temperature": 0.5,
        "n": 1,
        "tools": [],
        "tool_choice": "none",
        "stream_options": {"include_usage": True},
        "reasoning_effort": "low",
        "user": "me",
        "metadata": {"a": "b"},
    },
    RESPONSES: {
        "model": "scripted",
        "max_output_tokens": 200,
        "temperature": 0.5,
        "instructions": "Be brief.",
        "tools": [],
        "store": False,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low"},
    },
}


def _deep(levels: int) -> Any:
    found: Any = "in here"
    for _ in range(levels):
        found = [found]
    return found


ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 1.0, 1.5, 10**18, 2**63, 2**64, 10**40, -(10**40), 1e308, 1e-308,
    "", " ", "x", "\0", "\ud800", "\udfff\ud800", "\u202e\ufeff", "🌍" * 50, "user", "scripted",
    "x" * 3000, [], [None], [[]], {}, {"": ""}, {"type": "text"}, {"role": "user"},
    _deep(5), _deep(400), "data:image/png;base64,", "https://127.0.0.1/x.png", "fine\r\nX-A: b",
]  # fmt: skip


def change(body: dict[str, Any], dice: random.Random) -> str:
    """Do something to a body; says what."""
    places = list(_places(body))
    holder, key = dice.choice(places)
    what = dice.choice(["value", "value", "deleted", "added", "doubled"])
    if what == "deleted":
        del holder[key]
    elif what == "added" and isinstance(holder, dict):
        holder[dice.choice(["", "\ud800", "role", "type", "stream", "input", "messages"])] = (
            copy.deepcopy(dice.choice(ODD_VALUES))
        )
    elif what == "doubled" and isinstance(holder, list):
        holder.extend([holder[key]] * dice.choice([1, 30, 1000]))
    else:
        holder[key] = copy.deepcopy(dice.choice(ODD_VALUES))
    return f"{what} at {key}"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All values inside of one, as what holds them and where; never none."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))[:20]
        for key in keys:
            yield value, key
            yield from _places(value[key])
    if value == {}:
        yield value, "added"
        value["added"] = None


def _padded(text: str, size: int) -> bytes:
    """The same body with a very long message in front."""
    long = json.dumps("a word " * (size // 7))
    return (
        text.replace('"messages": [', f'"messages": [{{"role": "user", "content": {long}}}, ', 1)
        .replace('"input": "', f'"input": {long[:-1]} ', 1)
        .encode()
    )


RARE = {"very long": 0.3, "too long": 0.1}
WRITTEN: dict[str, Callable[[str, random.Random], bytes]] = {
    "same key twice": lambda text, _: b'{"stream": "no", "stream": false, ' + text[1:].encode(),
    "byte order mark": lambda text, _: b"\xef\xbb\xbf" + text.encode(),
    "utf-16": lambda text, _: text.encode("utf-16"),
    "utf-32": lambda text, _: text.encode("utf-32"),
    "latin-1": lambda text, _: text.replace("hi", "Grüße").encode("latin-1", "replace"),
    "bare surrogates": lambda text, _: text.replace("hi", "\ud83d").encode("utf-8", "surrogatepass"),
    "bare NUL": lambda text, _: text.replace("hi", "\0").encode(),
    "cut off": lambda text, dice: text.encode()[: dice.randrange(len(text))],
    "more behind": lambda text, _: text.encode() + b" {}",
    "blanks": lambda text, _: b" \n\t" * 3000 + text.encode(),
    "not a number": lambda text, _: text.replace("0.5", "NaN").replace("200", "Infinity").encode(),
    "long number": lambda text, _: text.replace("0.5", "1" * 5000).replace("200", "9" * 5000).encode(),
    "very deep": lambda text, _: b'{"x":' * 50_000 + text.encode(),
    "one bit": lambda text, dice: _one_bit(text.encode(), dice),
    "very long": lambda text, _: _padded(text, 1_000_000),
    "too long": lambda text, _: _padded(text, 1_000_000).ljust(LARGE + 1),
}  # fmt: skip


def _one_bit(text: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(text))
    return text[:place] + bytes([text[place] ^ 1 << dice.randrange(8)]) + text[place + 1 :]


RAW = [
    b"GET\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"GET  /livez  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /livez HTTP/1.1\nHost: localhost\n\n",
    b"GET /\xc3\xbc HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n",
    b"",
]

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "x-y")
PATHS = (
    "/", "//", "/v1", "/v1/", "/v1/models/", "/v1/models/a%2Fb", "/v1/models/..%2F..%2Fetc",
    "/v1/../livez", "/v1/%2e%2e/livez", "/livez/", "/livez?a=b", "/v1/chat/completions?x=%00",
    "/v1/models/%00", "/v1/models/%ff%fe", "/v1/models/%F0%9F%8C%8D", "/v1/models/" + "m" * 8000,
    "/" + "a/" * 3000, "/%", "/%zz", "/v1/models;x", "/V1/models", "/v1/chat/completions/",
    "/web/chats", "/enter/x", "/web/static/..%2f..%2fconfig.toml", "/openapi.json", "/metrics",
    "/readyz", "/v1/responses/x", "/v1/responses/resp_nobody", "/v1/responses/%00",
)  # fmt: skip

_HEAD = f"Authorization: Bearer {KEY}\r\nConnection: close\r\n"


def _lines(
    more: str, body: bytes, *, host: str = "Host: localhost\r\n", head: str = _HEAD
) -> bytes:
    text = f"POST {CHAT} HTTP/1.1\r\n{host}{head}{more}\r\n"
    return text.encode("latin-1", "replace") + body


def _with(name: str, *values: str | bytes) -> Callable[[bytes, random.Random], tuple[bytes, bool]]:
    """A request with another header, of one of these values."""

    def made(body: bytes, dice: random.Random) -> tuple[bytes, bool]:
        value = dice.choice(values)
        written = value if isinstance(value, bytes) else value.encode("latin-1", "replace")
        head, _, rest = _lines(f"Content-Length: {len(body)}\r\n\r\n", body).partition(b"\r\n\r\n")
        return head + b"\r\n" + name.encode() + b": " + written + b"\r\n\r\n" + rest[2:], True

    return made


def _key(*values: str) -> Callable[[bytes, random.Random], tuple[bytes, bool]]:
    def made(body: bytes, dice: random.Random) -> tuple[bytes, bool]:
        shown = f"{dice.choice(values)}\r\nConnection: close\r\n"
        return _lines(f"Content-Length: {len(body)}\r\n", body, head=shown), True

    return made


def _length(
    of: Callable[[int], str], *, complete: bool = True
) -> Callable[[bytes, random.Random], tuple[bytes, bool]]:
    return lambda body, _: (_lines(f"Content-Length: {of(len(body))}\r\n", body), complete)


def _chunks(
    body: bytes, *, complete: bool = True
) -> Callable[[bytes, random.Random], tuple[bytes, bool]]:
    return lambda _, __: (_lines("Transfer-Encoding: chunked\r\n", body), complete)


_CHUNKED = b'2c\r\n{"messages":[{"role":"user","content":"hi"}]\r\n1\r\n}\r\n0\r\n\r\n'
ODD: dict[str, Callable[[bytes, random.Random], tuple[bytes, bool]]] = {
    "length too small": _length(lambda size: str(size - 5)),
    "length too large": _length(lambda size: str(size + 5), complete=False),
    "length of a giant": _length(lambda _: "99999999999"),
    "length of many digits": _length(lambda _: "9" * 5000),
    "length that is none": _length(lambda _: "ten"),
    "length below zero": _length(lambda _: "-1"),
    "length in other digits": _length(lambda _: "\xb2"),
    "two lengths": _length(lambda size: f"{size}\r\nContent-Length: {size + 1}"),
    "length and chunks": _length(lambda size: f"{size}\r\nTransfer-Encoding: chunked", complete=False),
    "no length": lambda body, _: (_lines("", body), True),
    "chunks": _chunks(_CHUNKED),
    "chunks with trailers": _chunks(_CHUNKED.removesuffix(b"\r\n") + b"X-A: b\r\n\r\n"),
    "chunk of no size": _chunks(b"zz\r\n{}\r\n0\r\n\r\n"),
    "chunk of a giant": _chunks(b"ffffffffffffffffffff\r\n{}", complete=False),
    "chunk below zero": _chunks(b"-2\r\n{}\r\n0\r\n\r\n"),
    "chunks without end": _chunks(_CHUNKED[:20], complete=False),
    "chunks that are too much": lambda _, __: (
        _lines("Transfer-Encoding: chunked\r\n", b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 1
        + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 16 + b"0\r\n\r\n", True,
    ),
    "other transfer": lambda body, _: (_lines("Transfer-Encoding: gzip\r\n", body), True),
    "no host": lambda body, _: (_lines(f"Content-Length: {len(body)}\r\n", body, host=""), True),
    "two hosts": lambda body, _: (
        _lines(f"Content-Length: {len(body)}\r\n", body, host="Host: localhost\r\nHost: b\r\n"), True,
    ),
    "odd host": lambda body, dice: (
        _lines(
            f"Content-Length: {len(body)}\r\n", body,
            host=f"Host: {dice.choice(['', 'evil.example', '[::1', 'a b', 'x' * 3000, chr(0xE4)])}\r\n",
        ), True,
    ),
    "many headers": lambda body, dice: (
        _lines(f"Content-Length: {len(body)}\r\n" + "X-A: b\r\n" * dice.choice([100, 3000, 9000]), body), True,
    ),
    "long header": _with("X-Long", "x" * 8000, "x" * 60_000, "x" * 200_000),
    "folded header": _with("X-Fold", "a\r\n b", "a\r\n\tb", "a\r\n \r\n b"),
    "header with odd signs": _with("X-Odd", b"\xc3\xa4", b"\xff\xfe", b"a\0b", b"a\x7fb", b"a\x01b"),
    "header without a name": _with("", "x"),
    "header with blanks": _with("X A", "b"),
    "continue": _with("Expect", "100-continue", "something else"),
    "upgrade": _with("Upgrade", "websocket", "h2c"),
    "other site": _with("Origin", "null", "https://evil.example", "http://localhost", "::", "http://[::1"),
    "other content": _with("Content-Type", "text/plain", "application/xml", "", b"\xff"),
    "encoded content": _with("Content-Encoding", "gzip", "br"),
    "odd session": _with(
        "X-Session-Id", "", "~own", "a" * 129, "a b", "a/../b", "api:x", "é", b"\xff", "a\tb", "*", "x" * 5000
    ),
    "odd key of a request": _with(
        "Idempotency-Key", "", " ", "k" * 255, "k" * 256, "é", b"\xff\xfe", "a\tb", "'; drop table", "k" * 9000
    ),
    "odd authorization": _key(
        "X-None: 1", "Authorization:", "Authorization: Bearer", "Authorization: Bearer wrong",
        f"Authorization: {KEY}", f"Authorization: Basic {KEY}", f"Authorization: Bearer {KEY}{KEY}",
        f"Authorization: Bearer {KEY}\r\nAuthorization: Bearer x", "Authorization: Bearer \xff",
        "Authorization: Bearer " + "x" * 20_000, f"Authorization: bearer   {KEY}",
        f"Cookie: key={KEY}", f"Authorization: Bearer\t{KEY}",
    ),
    "told twice": lambda body, _: (
        _lines(f"Content-Length: {len(body)}\r\nIdempotency-Key: same\r\n", body), True,
    ),
}  # fmt: skip


def request(
    method: str, path: str, body: bytes = b"", *more: tuple[str, str], closes: bool = True
) -> bytes:
    """A request as it should be."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {KEY}",
        *(f"{name}: {value}" for name, value in more),
    ]
    if body or method not in {"GET", "HEAD"}:
        lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _described(path: str) -> str:
    return "/v1/models/{name}" if path.startswith("/v1/models/") else path


def _cut(sent: bytes, dice: random.Random) -> tuple[bytes, ...]:
    """The same in one to three pieces."""
    places = sorted(dice.randrange(len(sent)) for _ in range(dice.choice([0, 0, 1, 2])))
    return tuple(sent[a:b] for a, b in zip([0, *places], [*places, len(sent)], strict=True))
