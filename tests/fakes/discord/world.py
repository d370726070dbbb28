"""State of the fake Discord: people, servers, channels and messages, and rules for messages."""

import re
import time
from dataclasses import dataclass, field
from typing import Any

Payload = dict[str, Any]

EPOCH = 1_420_070_400_000
TEXT, DIRECT, PUBLIC_THREAD = 0, 1, 11
CONTENT_INTENT = 1 << 15
LIMIT = 2_000
_MENTION = re.compile(r"<@!?(\d+)>")
_ROLE_MENTION = re.compile(r"<@&(\d+)>")


class Refusal(Exception):
    """An error response."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class Channel:
    """A channel, thread or private chat, as a person sees it."""

    id: str
    kind: int
    guild: str = ""
    parent: str = ""
    name: str = ""
    person: str = ""
    messages: dict[str, Payload] = field(default_factory=dict)
    typing_until: float = 0.0
    readable: bool = True
    writable: bool = True

    @property
    def payload(self) -> Payload:
        made: Payload = {"id": self.id, "type": self.kind, "flags": 0}
        if self.guild:
            made |= {
                "guild_id": self.guild,
                "name": self.name,
                "position": 0,
                "permission_overwrites": [],
            }
        if self.parent:
            made |= {
                "parent_id": self.parent,
                "owner_id": "1",
                "message_count": 0,
                "member_count": 1,
                "thread_metadata": {
                    "archived": False,
                    "auto_archive_duration": 60,
                    "archive_timestamp": "2026-01-01T00:00:00+00:00",
                    "locked": False,
                },
            }
        return made


@dataclass
class Guild:
    """A Discord server."""

    id: str
    members: dict[str, Payload] = field(default_factory=dict)
    roles: list[Payload] = field(default_factory=list)


class World:
    """All persistent state; sends no events by itself."""

    def __init__(self, number: int = 0) -> None:
        self._number = number  # makes ids differ between worlds in one process
        self._last_id = 0
        self.shift = 0  # milliseconds by which Discord's clock differs from the machine's
        self.users: dict[str, Payload] = {}
        self.guilds: dict[str, Guild] = {}
        self.channels: dict[str, Channel] = {}
        self.files: dict[str, bytes] = {}
        self.nonces: dict[str, tuple[str, str]] = {}  # nonce -> channel, message
        self.commands: list[Payload] = []
        self.bot = self.user("Holdfast", bot=True)

    def now(self) -> int:
        return time.time_ns() // 1_000_000 + self.shift

    def new_id(self) -> str:
        least = ((self.now() - EPOCH) << 22) + (self._number << 12)
        self._last_id = max(self._last_id + 1, least)
        return str(self._last_id)

    # --- making a world ----------------------------------------------------------------------

    def user(self, name: str, *, bot: bool = False) -> Payload:
        number = self.new_id()
        made: Payload = {
            "id": number,
            "username": name.lower(),
            "global_name": name,
            "discriminator": "0",
            "avatar": None,
            "bot": bot,
        }
        self.users[number] = made
        return made

    def guild(self, *people: Payload) -> Guild:
        made = Guild(self.new_id())
        own = {"id": self.new_id(), "name": "Holdfast", "tags": {"bot_id": self.bot["id"]}}
        made.roles.append(own)
        for person in people:
            made.members[person["id"]] = {"nick": None, "roles": [], "user": person}
        self.guilds[made.id] = made
        return made

    def room(self, guild: Guild, name: str = "general") -> Channel:
        return self._channel(Channel(self.new_id(), TEXT, guild.id, name=name))

    def thread(self, parent: Channel, name: str = "a thread") -> Channel:
        kind = PUBLIC_THREAD
        return self._channel(Channel(self.new_id(), kind, parent.guild, parent.id, name))

    def direct(self, person: Payload) -> Channel:
        for channel in self.channels.values():
            if channel.person == person["id"]:
                return channel
        return self._channel(Channel(self.new_id(), DIRECT, person=person["id"]))

    def _channel(self, channel: Channel) -> Channel:
        self.channels[channel.id] = channel
        return channel

    # --- messages ----------------------------------------------------------------------------

    def channel(self, name: str) -> Channel:
        found = self.channels.get(name)
        if found is None:
            raise Refusal(404, 10003, "Unknown Channel")
        if not found.readable:
            raise Refusal(403, 50001, "Missing Access")
        return found

    def message(self, channel: Channel, name: str) -> Payload:
        if name not in channel.messages:
            raise Refusal(404, 10008, "Unknown Message")
        return channel.messages[name]

    def write(
        self,
        channel: Channel,
        author: Payload,
        content: str,
        *,
        reply_to: str | None = None,
        **more: Any,
    ) -> Payload:
        """Add a message as stored, without the fields that only gateway events have."""
        answered = channel.messages.get(reply_to or "")
        made: Payload = {
            "id": self.new_id(),
            "channel_id": channel.id,
            "author": author,
            "content": content,
            "timestamp": "2026-11-18T12:00:00.000000+00:00",
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [
                self.users[each] for each in _MENTION.findall(content) if each in self.users
            ],
            "mention_roles": _ROLE_MENTION.findall(content),
            "attachments": [],
            "embeds": [],
            "components": [],
            "reactions": [],
            "pinned": False,
            "flags": 0,
            "type": 19 if answered else 0,
        }
        if answered:
            made["message_reference"] = {"message_id": answered["id"], "channel_id": channel.id}
            made["referenced_message"] = {
                key: value for key, value in answered.items() if key != "referenced_message"
            }
        made |= more
        channel.messages[made["id"]] = made
        return made

    def attach(self, base: str, name: str, content: bytes, kind: str) -> Payload:
        """Store a file and return its attachment object."""
        number = self.new_id()
        self.files[number] = content
        return {
            "id": number,
            "filename": name,
            "size": len(content),
            "content_type": kind,
            "url": f"{base}/attachments/{number}/{name}",
            "proxy_url": f"{base}/attachments/{number}/{name}",
        }

    def told(self, message: Payload, intents: int) -> Payload:
        """Return a message as gateway event data, with member and server.

        The content is removed if the bot's intents do not cover it.
        """
        channel = self.channels[message["channel_id"]]
        made = dict(message)
        if not channel.guild:
            return made
        made["guild_id"] = channel.guild
        member = self.guilds[channel.guild].members.get(message["author"]["id"])
        if member:
            made["member"] = {key: value for key, value in member.items() if key != "user"}
        mine = message["author"]["id"] == self.bot["id"]
        mentioned = any(user["id"] == self.bot["id"] for user in message["mentions"])
        if not (intents & CONTENT_INTENT or mine or mentioned):
            made |= {"content": "", "attachments": [], "embeds": [], "components": []}
        return made


def complaints(payload: Payload) -> list[str]:
    """Return the reasons for which Discord would refuse a message."""
    content = payload.get("content") or ""
    rows = payload.get("components") or []
    buttons = [button for row in rows for button in row["components"]]
    names = [button["custom_id"] for button in buttons]
    wrong = {
        "longer than 2,000 characters": len(content) > LIMIT,
        "nothing to show": not content.strip() and not payload.get("attachments"),
        "more than 5 rows": len(rows) > 5,
        "more than 5 buttons in a row": any(len(row["components"]) > 5 for row in rows),
        "a button's id is longer than 100": any(len(name) > 100 for name in names),
        "a button's id is there twice": len(set(names)) != len(names),
        "a button's label is empty or longer than 80": any(
            not 0 < len(button["label"]) <= 80 for button in buttons
        ),
        "a nonce is longer than 25": len(str(payload.get("nonce", ""))) > 25,
    }
    return [complaint for complaint, is_so in wrong.items() if is_so]


def dislikes(payload: Payload) -> list[str]:
    """Return defects of an accepted message that people would notice."""
    content = payload.get("content") or ""
    allowed = payload.get("allowed_mentions")
    outside = re.sub(r"```.*?```", "", content, flags=re.DOTALL)
    wrong = {
        "a mass mention would ring": allowed is None or allowed.get("parse") != [],
        "an open code block": content.count("```") % 2 == 1,
        "a table as text": re.search(r"^\s*\|?\s*:?-{3,}:?\s*\|", outside, re.MULTILINE)
        is not None,
        "a heading of a size that is not shown": re.search(r"^#{4,} ", outside, re.MULTILINE)
        is not None,
    }
    return [complaint for complaint, is_so in wrong.items() if is_so]
