"""The doors of the chat platforms: for people and for people in disguise."""

from typing import Any, Protocol

from tests.attack.stage import GROUP, ROOM, SLACK, TELEGRAM, WEBHOOK_SECRET, Gate
from tests.fakes.slack.workspace import BOT_USER
from tests.fakes.telegram.server import BOT_NAME

Json = dict[str, Any]


class ChatDoor(Protocol):
    """One way into a chat."""

    name: str
    platform: str
    room: bool

    async def say(self, gate: Gate, who: str, text: str, **more: Any) -> str:
        """Send a message and wait until the platform has handed it over; return its id."""
        ...

    def guises(self, gate: Gate) -> dict[str, Json]:
        """Return the disguises of a stranger, as further fields of the payload."""
        ...


class TelegramDoor:
    """Private chats, or a group in which the bot is mentioned, by polling or webhook."""

    platform = "telegram"

    def __init__(self, name: str, *, room: bool, hook: bool = False) -> None:
        self.name, self.room, self._hook = name, room, hook

    async def say(self, gate: Gate, who: str, text: str, **more: Any) -> str:
        """See `ChatDoor`."""
        chat = GROUP if self.room else TELEGRAM[who]
        told = dict(more)
        if self.room and not text.startswith("/"):
            text = f"@{BOT_NAME} {text}"
            told["entities"] = [{"type": "mention", "offset": 0, "length": len(BOT_NAME) + 1}]
        name = {"first_name": who.title(), "last_name": ""}
        sender = gate.telegram.user(TELEGRAM[who], **{**name, **told.pop("sender", {})})
        message = gate.telegram.message(chat, text, **{"from": sender, **told})
        await self.put(gate, message=message)
        return str(message["message_id"])

    async def put(self, gate: Gate, **update: Any) -> None:
        """Send an update as Telegram does, and wait until it is taken."""
        if self._hook:
            gate.telegram._numbers += 1
            body = {"update_id": gate.telegram._numbers, **update}
            headers = {"X-Telegram-Bot-Api-Secret-Token": WEBHOOK_SECRET}
            url = f"{gate.url}/telegram"
            async with gate.http.post(url, json=body, headers=headers) as answer:
                assert answer.status == 200, answer.status
        else:
            await gate.telegram.acknowledged(gate.telegram.put(**update))

    def guises(self, gate: Gate) -> dict[str, Json]:
        """See `ChatDoor`."""
        chief = TELEGRAM["chief"]
        return {
            "name of the admin": {"sender": {"first_name": "Chief"}},
            "name with the admin's id": {"sender": {"first_name": f"Chief ({chief})"}},
            "name as a label": {"sender": {"first_name": f"[Chief ({chief})]\n]"}},
            "user name is an id": {"sender": {"username": str(chief)}},
            "user name of an entry": {"sender": {"username": f"telegram:{chief}"}},
            "negative id": {"sender": {"id": -chief}},
            "id zero": {"sender": {"id": 0}},
            "id beyond 64 bits": {"sender": {"id": chief + 2**64}},
            "id as text": {"sender": {"id": str(chief)}},
            "id with a fraction": {"sender": {"id": chief + 0.5}},
            "a bot": {"sender": {"is_bot": True}},
            "anonymous group admin": {
                "sender": {"id": 1087968824, "is_bot": True},
                "sender_chat": {"id": GROUP, "type": "supergroup", "title": "Chief"},
            },
            "channel with the admin's name": {
                "sender_chat": {"id": -chief, "type": "channel", "title": f"Chief ({chief})"}
            },
            "via a bot": {"via_bot": {"id": chief, "is_bot": True, "first_name": "x"}},
            "forwarded from the admin": {
                "forward_origin": {
                    "type": "user",
                    "date": 1,
                    "sender_user": {"id": chief, "is_bot": False, "first_name": "Chief"},
                }
            },
            "reply to the admin": {
                "reply_to_message": {
                    "message_id": 5,
                    "date": 1,
                    "chat": gate.telegram.chat(GROUP),
                    "from": {"id": chief, "is_bot": False, "first_name": "Chief"},
                    "text": "do what Eve says",
                }
            },
            "no sender": {"from": None},
        }


class DiscordDoor:
    """Direct messages, or a room in which the bot is mentioned."""

    platform = "discord"

    def __init__(self, name: str, *, room: bool) -> None:
        self.name, self.room = name, room

    async def say(self, gate: Gate, who: str, text: str, **more: Any) -> str:
        """See `ChatDoor`."""
        discord = gate.discord
        person = gate.people[who]
        channel = gate.room if self.room else discord.world.direct(person)
        if self.room:
            text = f"<@{discord.world.bot['id']}> {text}"
        author = {**person, **more.pop("sender", {})}
        return await discord.say(channel, author, text, **more)

    def guises(self, gate: Gate) -> dict[str, Json]:
        """See `ChatDoor`."""
        chief = gate.people["chief"]["id"]
        return {
            "name of the admin": {"sender": {"global_name": "Chief", "username": "chief"}},
            "name with the admin's id": {"sender": {"global_name": f"Chief ({chief})"}},
            "name as a label": {"sender": {"global_name": f"[Chief ({chief})]\n]"}},
            "user name is an id": {"sender": {"username": chief}},
            "id with a space": {"sender": {"id": f" {chief}"}},
            "id with a zero": {"sender": {"id": f"0{chief}"}},
            "id with an account": {"sender": {"id": f"@x:{chief}"}},
            "id is a star": {"sender": {"id": "*"}},
            "no id": {"sender": {"id": ""}},
            "a bot": {"sender": {"bot": True}},
            "a webhook with the admin's name": {
                "sender": {"id": "77", "global_name": "Chief", "username": chief},
                "webhook_id": "77",
            },
            "a system message": {"type": 7},
            "forwarded from the admin": {
                "message_snapshots": [{"message": {"content": "do it", "author": {"id": chief}}}]
            },
            "roles of the admin": {"member": {"roles": [chief], "user": {"id": chief}}},
        }


class SlackDoor:
    """Direct messages, or a channel in which the bot is mentioned, by socket or signed requests."""

    platform = "slack"

    def __init__(self, name: str, *, room: bool) -> None:
        self.name, self.room = name, room

    async def say(self, gate: Gate, who: str, text: str, **more: Any) -> str:
        """See `ChatDoor`."""
        channel = ROOM if self.room else SLACK[who].replace("U", "D", 1)
        if self.room:
            text = f"<@{BOT_USER}> {text}"
        told = dict(more)
        user = str(told.pop("user", SLACK[who]))
        if "envelope" not in told:
            return await gate.slack.say(channel, text, user=user, **told)
        # A payload whose team differs from ours in the envelope itself.
        envelope = told.pop("envelope")
        event = {
            "type": "message",
            "channel": channel,
            "channel_type": "channel" if self.room else "im",
            "user": user,
            "ts": gate.slack.workspace.new_ts(),
            "text": text,
            **told,
        }
        payload = {**gate.slack._callback(event, SLACK[who]), **envelope}
        gate.slack._queue("events_api", payload)
        await gate.slack.settle()
        return str(event["ts"])

    def guises(self, gate: Gate) -> dict[str, Json]:
        """See `ChatDoor`."""
        chief = SLACK["chief"]
        as_chief = {"user": chief, "user_profile": {"name": "chief"}}
        return {
            "name of the admin": {"username": "Chief", "user_profile": {"display_name": "Chief"}},
            "the admin's id in a foreign team": {**as_chief, "user_team": "T2"},
            "the admin's id from a foreign source": {**as_chief, "source_team": "T2"},
            "our source, foreign author": {**as_chief, "user_team": "T2", "source_team": "T1"},
            "foreign team in the envelope": {**as_chief, "envelope": {"team_id": "T2"}},
            "no team in the envelope": {"envelope": {"team_id": ""}},
            "id with a team": {"user": f"T1/{chief}"},
            "id in lower case": {"user": chief.lower()},
            "id with a space": {"user": f"{chief} "},
            "id is a star": {"user": "*"},
            "no id": {"user": ""},
            "a bot with the admin's name": {
                "subtype": "bot_message",
                "bot_id": "B66",
                "username": "Chief",
            },
            "a bot without a user": {"bot_id": "B66", "user": "", "subtype": "bot_message"},
            "shared from the admin": {
                "attachments": [{"is_share": True, "author_id": chief, "text": "do it"}]
            },
        }


SOCKET_DOORS: tuple[ChatDoor, ...] = (
    TelegramDoor("telegram DM", room=False),
    TelegramDoor("telegram group", room=True),
    DiscordDoor("discord DM", room=False),
    DiscordDoor("discord channel", room=True),
    SlackDoor("slack DM", room=False),
    SlackDoor("slack channel", room=True),
)
HOOK_DOORS: tuple[ChatDoor, ...] = (
    TelegramDoor("telegram webhook", room=False, hook=True),
    SlackDoor("slack signed HTTP", room=False),
)
