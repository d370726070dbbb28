"""Forged, stale, repeated and unreadable events on the wires of the platforms."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import urlencode

from tests.attack.chats import SOCKET_DOORS
from tests.attack.ledger import Judge, Row, held, verdict
from tests.attack.port import BODIES, ask
from tests.attack.stage import SLACK, TELEGRAM, WEBHOOK_SECRET, Bait, Gate
from tests.fakes.slack.server import SIGNING_SECRET, sign
from tests.fakes.slack.workspace import TEAM

_FIVE_MINUTES = 300
_HEADER = "X-Telegram-Bot-Api-Secret-Token"
_NUMBER = 900_000
_MOMENT = 0.5  # seconds of quick time for an event to arrive

Attempt = Callable[[Gate], Awaitable[Judge]]

# --- signatures ------------------------------------------------------------------------------------

FORGED_SECRETS: dict[str, dict[str, str]] = {
    "no secret": {},
    "empty secret": {_HEADER: ""},
    "another secret": {_HEADER: "canary-of-the-webhook-4568"},
    "beginning of the secret": {_HEADER: WEBHOOK_SECRET[:-1]},
    "the secret and more": {_HEADER: f"{WEBHOOK_SECRET}0"},
    "upper case": {_HEADER: WEBHOOK_SECRET.upper()},
    "not ASCII": {_HEADER: "ключ"},
    "another header": {"Authorization": f"Bearer {WEBHOOK_SECRET}"},
    "a cookie": {"Cookie": f"secret={WEBHOOK_SECRET}"},
    "from this machine": {"X-Forwarded-For": "149.154.160.1", "X-Real-IP": "127.0.0.1"},
}


def forged_telegram() -> Iterable[Row]:
    """Updates of Ann and of an admin without the secret of the webhook."""
    for case, headers in FORGED_SECRETS.items():
        for who in ("ann", "chief"):
            yield Row(
                "telegram webhook",
                "forged secret",
                f"{case}, as {who}",
                _forged_update(headers, who),
            )
    for case, body in BODIES.items():
        yield Row("telegram webhook", "bad body", case, _bad_update(body))


def _forged_update(headers: dict[str, str], who: str) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        message = gate.telegram.message(TELEGRAM[who], f"hello {mark}", user=TELEGRAM[who])
        update = {"update_id": _NUMBER, "message": message}
        path = f"/telegram?secret_token={WEBHOOK_SECRET}"
        status, _ = await ask(gate, "POST", path, json=update, headers=headers)
        return lambda: f"status {status}" if status != 403 or gate.requests_with(mark) else ""

    return attempt


def _bad_update(body: bytes) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        headers = {_HEADER: WEBHOOK_SECRET, "Content-Type": "application/json"}
        status, _ = await ask(gate, "POST", "/telegram", data=io.BytesIO(body), headers=headers)
        return verdict("" if status < 500 else f"status {status}")

    return attempt


def forged_slack(bait: Bait) -> Iterable[Row]:
    """Events, buttons and commands of an admin without Slack's signature."""
    for kind in ("event", "button", "command", "certificate test"):
        for case in _SIGNATURES:
            yield Row(
                "slack signed HTTP",
                "forged signature",
                f"{kind}, {case}",
                _forged_request(bait, kind, case),
            )
    for case, body in BODIES.items():
        yield Row("slack signed HTTP", "bad body", case, _bad_request(body))


def _sign(body: str, now: int, **changes: str) -> dict[str, str]:
    return {**sign(body, now), **changes}


_SIGNATURES: dict[str, Callable[[str, int], dict[str, str]]] = {
    "no signature": lambda _body, now: {"X-Slack-Request-Timestamp": str(now)},
    "no headers": lambda _body, _now: {},
    "empty signature": lambda body, now: _sign(body, now, **{"X-Slack-Signature": ""}),
    "version alone": lambda body, now: _sign(body, now, **{"X-Slack-Signature": "v0="}),
    "another secret": lambda body, now: sign(body, now, "0" * 32),
    "empty secret": lambda body, now: sign(body, now, ""),
    "another body": lambda body, now: sign(f"{body} ", now),
    "another time": lambda body, now: _sign(
        body, now, **{"X-Slack-Request-Timestamp": str(now + 1)}
    ),
    "six minutes old": lambda body, now: sign(body, now - _FIVE_MINUTES - 60),
    "an hour old": lambda body, now: sign(body, now - 3600),
    "six minutes ahead": lambda body, now: sign(body, now + _FIVE_MINUTES + 60),
    "time zero": lambda body, _now: sign(body, 0),
    "negative time": lambda body, now: sign(body, -now),
    "time is no number": lambda body, now: _sign(body, now, **{"X-Slack-Request-Timestamp": "now"}),
    "time in other digits": lambda body, now: _sign(
        body, now, **{"X-Slack-Request-Timestamp": "".join(chr(0xFF10 + int(d)) for d in str(now))}
    ),
    "another version": lambda body, now: _sign(
        body, now, **{"X-Slack-Signature": sign(body, now)["X-Slack-Signature"].replace("v0", "v1")}
    ),
    "upper case": lambda body, now: _sign(
        body, now, **{"X-Slack-Signature": sign(body, now)["X-Slack-Signature"].upper()}
    ),
    "cut": lambda body, now: _sign(
        body, now, **{"X-Slack-Signature": sign(body, now)["X-Slack-Signature"][:-1]}
    ),
    "the secret itself": lambda body, now: _sign(
        body, now, **{"X-Slack-Signature": f"v0={SIGNING_SECRET[:4]}"}
    ),
}


def _forged_request(bait: Bait, kind: str, case: str) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        body, media_type = _slack_body(gate, bait, kind, mark)
        now = int(gate.slack.workspace.now())
        headers = {"Content-Type": media_type, **_SIGNATURES[case](body, now)}
        status, _ = await ask(gate, "POST", "/slack/events", data=body, headers=headers)
        fine = status == 200 if kind == "certificate test" else status == 401
        open_ = bait.question.id in {each.id for each in await gate.approvals()}
        if not fine or not open_:
            return lambda: f"status {status}, the question is {'open' if open_ else 'answered'}"
        return lambda: "the words reached the model" if gate.requests_with(mark) else ""

    return attempt


def _slack_body(gate: Gate, bait: Bait, kind: str, mark: str) -> tuple[str, str]:
    form = "application/x-www-form-urlencoded"
    chief = SLACK["chief"]
    if kind == "event":
        event = {
            "type": "message",
            "channel": "D9",
            "channel_type": "im",
            "user": chief,
            "ts": gate.slack.workspace.new_ts(),
            "text": f"hello {mark}",
        }
        return json.dumps(gate.slack._callback(event, chief)), "application/json"
    payload = press(gate, chief, "D9", f"approve:{bait.question.id}")
    if kind == "button":
        return urlencode({"payload": json.dumps(payload)}), form
    if kind == "certificate test":
        return urlencode({"ssl_check": "1", "payload": json.dumps(payload)}), form
    command = {
        "command": "/holdfast",
        "text": f"approve {bait.code}",
        "team_id": TEAM,
        "channel_id": "D9",
        "user_id": chief,
        "trigger_id": mark,
    }
    return urlencode(command), form


def press(
    gate: Gate, user: str, channel: str, action: str, team: str | None = TEAM
) -> dict[str, Any]:
    """Return the payload of a button press on Slack."""
    ts = gate.slack.workspace.new_ts()
    person = {"id": user, "username": "x"}
    return {
        "type": "block_actions",
        "team": {"id": TEAM},
        "user": person if team is None else {**person, "team_id": team},
        "channel": {"id": channel},
        "container": {"type": "message", "message_ts": ts, "channel_id": channel},
        "message": {"ts": ts, "user": "U0BOT"},
        "trigger_id": f"{ts}.abc",
        "response_url": "http://127.0.0.1:1/",
        "actions": [
            {"action_id": "holdfast.0", "value": action, "type": "button", "action_ts": ts}
        ],
    }


def _bad_request(body: bytes) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        for media_type in ("application/json", "application/x-www-form-urlencoded"):
            now = int(gate.slack.workspace.now())
            text = body.decode("utf-8", "replace")
            headers = {"Content-Type": media_type, **sign(text, now)}
            sent = io.BytesIO(text.encode())
            status, _ = await ask(gate, "POST", "/slack/events", data=sent, headers=headers)
            if status >= 500:
                return verdict(f"status {status}")
        return held

    return attempt


# --- the same event again --------------------------------------------------------------------------


def repeated() -> Iterable[Row]:
    """Events that come twice are answered once."""
    for case, attempt in {
        "telegram: the same update": _telegram_again(same_number=True),
        "telegram: the same message": _telegram_again(same_number=False),
        "discord: the same message": _discord_again(rename=False),
        "discord: the same message, renamed": _discord_again(rename=True),
        "slack: the same event": _slack_again(twin=False),
        "slack: the same event as a mention": _slack_again(twin=True),
    }.items():
        platform = case.partition(":")[0]
        yield Row(f"{platform} DM", "repeated event", case, attempt)


def _once(gate: Gate, mark: str) -> Judge:
    def judge() -> str:
        asked = [each.last_user_text for each in gate.model.requests]
        count = len([text for text in asked if mark in text])
        return "" if count == 1 else f"{count} requests"

    return judge


def _telegram_again(*, same_number: bool) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        message = gate.telegram.message(TELEGRAM["ben"], f"hello {mark}", user=TELEGRAM["ben"])
        number = gate.telegram.put(message=message)
        await gate.telegram.acknowledged(number)
        if same_number:
            gate.telegram._updates.append({"update_id": number, "message": message})
            gate.telegram._tell()
        else:
            await gate.telegram.acknowledged(gate.telegram.put(message=message))
        await gate.until(lambda: bool(gate.requests_with(mark)))
        gate.telegram._acknowledge(number)
        return _once(gate, mark)

    return attempt


def _discord_again(*, rename: bool) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        ben = gate.people["ben"]
        channel = gate.discord.world.direct(ben)
        number = await gate.discord.say(channel, ben, f"hello {mark}")
        await gate.until(lambda: bool(gate.requests_with(mark)))
        message = dict(channel.messages[number])
        if rename:
            message["author"] = {**ben, "global_name": "Chief"}
        await gate.discord._tell_message("MESSAGE_CREATE", message)
        return _once(gate, mark)

    return attempt


def _slack_again(*, twin: bool) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        user = SLACK["ben"]
        event = {
            "type": "message",
            "channel": "D5",
            "channel_type": "im",
            "user": user,
            "ts": gate.slack.workspace.new_ts(),
            "text": f"hello {mark}",
        }
        again = {**event, "type": "app_mention"} if twin else event
        for each in (event, again):
            gate.slack._queue("events_api", gate.slack._callback(each, user))
            await gate.slack.settle()
        await gate.until(lambda: bool(gate.requests_with(mark)))
        return _once(gate, mark)

    return attempt


# --- events that cannot be read --------------------------------------------------------------------

_DEEP = "[" * 20_000 + "]" * 20_000
_MESSAGE = {"id": "5", "channel_id": "6", "type": 0, "content": "x", "timestamp": "x"}
DISCORD_GARBAGE: dict[str, str] = {
    "deep": _DEEP,
    "deep in a message": '{"op":0,"t":"MESSAGE_CREATE","s":1,"d":{"embeds":' + _DEEP + "}}",
    "array": "[]",
    "null": "null",
    "text": '"x"',
}
"""Frames that the library itself cannot read: it connects again."""

DISCORD_FRAMES: dict[str, str] = {
    "no kind": '{"op":0,"d":{}}',
    "kind is null": '{"op":0,"t":null,"d":null}',
    "data is a list": '{"op":0,"t":"MESSAGE_CREATE","d":[]}',
    "message without anything": '{"op":0,"t":"MESSAGE_CREATE","d":{}}',
    "author is null": json.dumps(
        {"op": 0, "t": "MESSAGE_CREATE", "d": {**_MESSAGE, "author": None}}
    ),
    "author without id": json.dumps(
        {"op": 0, "t": "MESSAGE_CREATE", "d": {**_MESSAGE, "author": {}}}
    ),
    "channel is text": json.dumps(
        {"op": 0, "t": "MESSAGE_CREATE", "d": {**_MESSAGE, "channel_id": "None"}}
    ),
    "id is text": json.dumps(
        {"op": 0, "t": "MESSAGE_CREATE", "d": {**_MESSAGE, "id": "x", "author": {"id": "7"}}}
    ),
    "id is negative": json.dumps(
        {"op": 0, "t": "MESSAGE_CREATE", "d": {**_MESSAGE, "id": "-1", "author": {"id": "7"}}}
    ),
    "id is huge": json.dumps(
        {"op": 0, "t": "MESSAGE_CREATE", "d": {**_MESSAGE, "id": "9" * 400, "author": {"id": "7"}}}
    ),
    "content is a list": json.dumps(
        {"op": 0, "t": "MESSAGE_CREATE", "d": {**_MESSAGE, "content": [1], "author": {"id": "7"}}}
    ),
    "mentions are text": json.dumps(
        {"op": 0, "t": "MESSAGE_CREATE", "d": {**_MESSAGE, "mentions": "x", "author": {"id": "7"}}}
    ),
    "attachments are text": json.dumps(
        {
            "op": 0,
            "t": "MESSAGE_CREATE",
            "d": {**_MESSAGE, "attachments": "x", "author": {"id": "7"}},
        }
    ),
    "empty interaction": '{"op":0,"t":"INTERACTION_CREATE","d":{}}',
    "interaction without a person": '{"op":0,"t":"INTERACTION_CREATE","d":{"id":"1","type":3,"token":"t","data":{"custom_id":"hf:stop"}}}',
    "deletion without a channel": '{"op":0,"t":"MESSAGE_DELETE","d":{"id":"1"}}',
    "edit of nothing": '{"op":0,"t":"MESSAGE_UPDATE","d":{"id":"1","edited_timestamp":"never"}}',
    "server is text": '{"op":0,"t":"GUILD_CREATE","d":{"id":"x","channels":"x","roles":5}}',
}
SLACK_FRAMES: dict[str, str] = {
    "deep": _DEEP,
    "deep in an event": '{"type":"events_api","envelope_id":"e","payload":{"event":' + _DEEP + "}}",
    "array": "[]",
    "null": "null",
    "text": '"x"',
    "empty": "{}",
    "no payload": '{"type":"events_api","envelope_id":"e"}',
    "payload is text": '{"type":"events_api","envelope_id":"e","payload":"x"}',
    "event is null": '{"type":"events_api","envelope_id":"e","payload":{"type":"event_callback","event":null}}',
    "channel is a list": '{"type":"events_api","envelope_id":"e","payload":{"type":"event_callback","event":{"type":"message","channel":[1],"ts":"x","user":5}}}',
    "time is text": '{"type":"events_api","envelope_id":"e","payload":{"type":"event_callback","event":{"type":"message","channel":"C1","ts":"never","user":"U6"}}}',
    "actions are null": '{"type":"interactive","envelope_id":"e","payload":{"type":"block_actions","actions":null}}',
    "button without a value": '{"type":"interactive","envelope_id":"e","payload":{"type":"block_actions","actions":[{"action_id":"holdfast.0"}],"user":{"id":"U6"}}}',
    "command without a person": '{"type":"slash_commands","envelope_id":"e","payload":{"command":"/holdfast"}}',
    "unknown kind": '{"type":"evil","envelope_id":"e","payload":{}}',
    "envelope is a number": '{"type":"events_api","envelope_id":5,"payload":{}}',
}
TELEGRAM_UPDATES: dict[str, dict[str, Any]] = {
    "message is null": {"message": None},
    "message is text": {"message": "x"},
    "no chat": {"message": {"message_id": 1, "date": 1, "from": {"id": 6666, "is_bot": False}}},
    "chat is text": {"message": {"message_id": 1, "date": 1, "chat": "x"}},
    "id is text": {"message": {"message_id": "x", "date": 1, "chat": {"id": 1, "type": "private"}}},
    "huge date": {"message": {"message_id": 1, "date": 10**30, "chat": {"id": 6666, "type": "private"}}},
    "entities beyond the text": {
        "message": {
            "message_id": 1,
            "date": 1,
            "chat": {"id": 6666, "type": "private"},
            "from": {"id": 6666, "is_bot": False, "first_name": "x"},
            "text": "x",
            "entities": [{"type": "bold", "offset": 5, "length": -7}],
        }
    },
    "button without a message": {"callback_query": {"id": "1", "from": {"id": 6666}, "data": "stop"}},
    "button without data": {"callback_query": {"id": "1", "from": {"id": 6666}}},
}  # fmt: skip


def unreadable() -> Iterable[Row]:
    """Events that cannot be read end nothing: a person is answered afterwards."""
    for case, frame in DISCORD_GARBAGE.items():
        yield Row("discord channel", "unreadable event", case, _discord_garbage(frame))
    for case, frame in DISCORD_FRAMES.items():
        yield Row("discord channel", "unreadable event", case, _discord_frame(frame))
    for case, frame in SLACK_FRAMES.items():
        yield Row("slack channel", "unreadable event", case, _slack_frame(frame))
    for case, update in TELEGRAM_UPDATES.items():
        yield Row("telegram DM", "unreadable event", case, _telegram_update(update))
    for door in SOCKET_DOORS:
        if not door.room:
            yield Row(door.name, "unreadable event", "answers afterwards", _answers(door.platform))


def _discord_garbage(frame: str) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        await _send_discord(gate, frame)
        await gate.until(lambda: gate.discord.online)
        return held

    return attempt


async def _send_discord(gate: Gate, frame: str) -> None:
    for session in gate.discord._sessions.values():
        if session.socket:
            await session.socket.send_str(frame)
    await asyncio.sleep(_MOMENT)


def _discord_frame(frame: str) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        await gate.until(lambda: gate.discord.online)
        identified = gate.discord.identified + gate.discord.resumed
        await _send_discord(gate, frame)
        same = gate.discord.identified + gate.discord.resumed == identified and gate.discord.online
        return verdict("" if same else "the connection ended")

    return attempt


def _slack_frame(frame: str) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        before = gate.slack.connections
        await gate.slack.connected.wait()
        await gate.slack.sockets[-1].send_str(frame)
        await asyncio.sleep(_MOMENT)
        same = gate.slack.connections == before and gate.slack.connected.is_set()
        return verdict("" if same else "the connection ended")

    return attempt


def _telegram_update(update: dict[str, Any]) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        await gate.telegram.acknowledged(gate.telegram.put(**update))
        return held

    return attempt


def _answers(platform: str) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        door = next(each for each in SOCKET_DOORS if each.platform == platform and not each.room)
        await door.say(gate, "ben", f"hello {mark}")
        await gate.until(lambda: bool(gate.requests_with(mark)))
        return held

    return attempt
