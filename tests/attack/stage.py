"""One gateway on three platforms, with canaries, and with people of every kind of access.

Ann is a member and Chief an admin. Ben is a member who attacks. Eve is a stranger. Rex had access
and lost it. Ann's and Chief's private words and files, and all keys and tokens, are canaries.
"""

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from gateway.access.settings import AccessSettings
from gateway.runner import GatewayRunner
from gateway.settings import GatewaySettings, HttpSettings
from platforms.core.registry import load_specs
from platforms.discord.config import DiscordConfig
from sessions.records import Approval
from sessions.store.store import SessionStore
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from tests.attack import obedient
from tests.fakes.discord.server import TOKEN as DISCORD_TOKEN
from tests.fakes.discord.server import DiscordServer
from tests.fakes.discord.world import Channel
from tests.fakes.gateway_settings import scripted, scripted_model
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here
from tests.fakes.slack.kit import config_for
from tests.fakes.slack.server import BOT_TOKEN, SIGNING_SECRET, SlackServer
from tests.fakes.slack.workspace import Workspace
from tests.fakes.telegram.kit import config as telegram_config
from tests.fakes.telegram.look import words_of
from tests.fakes.telegram.server import TOKEN as TELEGRAM_TOKEN
from tests.fakes.telegram.server import Shown, TelegramServer, serving

HTTP_KEY = "canary-of-the-http-port-0123456789"
MODEL_KEY = "sk-canary0of0the0model0service0123456789"
WEBHOOK_SECRET = "canary-of-the-webhook-4567"
SECRETS = (HTTP_KEY, MODEL_KEY, WEBHOOK_SECRET, TELEGRAM_TOKEN, DISCORD_TOKEN, BOT_TOKEN)
PRIVATE = {"ann": "annswordscanary", "chief": "chiefswordscanary"}
FILES = {"ann": "annsfilecanary", "chief": "chiefsfilecanary", "outside": "outsidefilecanary"}
"""Words and files that only their owner may see."""

PLATFORMS = ("telegram", "discord", "slack")
PEOPLE = ("ann", "ben", "chief", "eve", "rex")
TELEGRAM = {"ann": 1001, "ben": 1002, "chief": 9001, "eve": 6666, "rex": 1003}
SLACK = {"ann": "U1", "ben": "U5", "chief": "U9", "eve": "U6", "rex": "U7"}
GROUP, ROOM = -777, "C1"
REST = 3.0  # seconds of quick time without news after which the gateway rests
PATIENCE = 60.0
_LONGEST = 1200.0
_LOOK = 0.02
_NEWEST = 6
_HREF = re.compile(r'<a [^<>]*href="([^"]*)"')
_TARGET = re.compile(r"\]\(([^)]*)\)")
_CODE = re.compile(r"with this code: (\w{8})")


class Seen(msgspec.Struct, frozen=True):
    """A message as a person sees it."""

    visible: str
    links: tuple[str, ...] = ()


def _on_telegram(message: Shown) -> Seen:
    if message.html:
        return Seen(words_of(message.html), tuple(_HREF.findall(message.html)))
    return Seen(message.text, tuple(str(each["url"]) for each in message.entities if "url" in each))


def _from_markdown(text: str) -> Seen:
    return Seen(_TARGET.sub("]", text), tuple(_TARGET.findall(text)))


class Till:
    """Tools with effects, which count their runs."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.pages: dict[str, str] = {}  # what `look_up` finds

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools: one that needs an admin, one that asks, one that reads."""

        @tool(risk=Risk.EXEC)
        async def pay(context: ToolContext, to: str) -> str:  # noqa: ARG001 - every tool has one
            """Pay a person.

            Args:
                context: Not part of the call.
                to: Who gets the money.
            """
            self.ran.append(f"pay {to}")
            return "paid"

        @tool(risk=Risk.NET)
        async def post_out(context: ToolContext, text: str) -> str:  # noqa: ARG001 - as above
            """Post to the internet.

            Args:
                context: Not part of the call.
                text: What to post.
            """
            self.ran.append(f"post {text}")
            return "posted"

        @tool(risk=Risk.READ)
        async def look_up(context: ToolContext, topic: str) -> str:  # noqa: ARG001 - as above
            """Look something up.

            Args:
                context: Not part of the call.
                topic: What to look up.
            """
            return self.pages.get(topic, "nothing")

        return pay, post_out, look_up

    def door(self) -> Tool:
        """Return a tool that runs without a question, and whose opposite does not exist."""

        @tool(risk=Risk.WRITE)
        async def unlock_door(context: ToolContext, to: str) -> str:  # noqa: ARG001 - as above
            """Unlock the door.

            Args:
                context: Not part of the call.
                to: For whom.
            """
            self.ran.append(f"unlock {to}")
            return "unlocked"

        return unlock_door


class Gate:
    """The gateway, its platforms and its model."""

    def __init__(
        self,
        runner: GatewayRunner,
        model: ModelServer,
        home: Path,
        platforms: tuple[TelegramServer, DiscordServer, SlackServer],
        http: aiohttp.ClientSession,
    ) -> None:
        self.runner = runner
        self.model = model
        self.home = home
        self.telegram, self.discord, self.slack = platforms
        self.http = http
        self.till = Till()
        self.people: dict[str, dict[str, Any]] = {}  # of Discord
        self.room: Channel
        self.webhooks = False
        self.answers: list[tuple[str, str]] = []  # of the HTTP port: what was asked, and the body
        self._marks = itertools.count(1)

    @property
    def store(self) -> SessionStore:
        """The open store."""
        assert self.runner._store
        return self.runner._store

    @property
    def url(self) -> str:
        """Base of the HTTP port."""
        assert self.runner._http_server
        return self.runner._http_server.url.rstrip("/")

    def mark(self) -> str:
        """Return a word that occurs in one attack alone."""
        return f"mk{next(self._marks):05d}x"

    def requests_with(self, text: str) -> list[str]:
        """Return the bodies of the model requests that contain a mark."""
        sign = text.encode()
        return [each.raw.decode() for each in self.model.requests if sign in each.raw]

    async def approvals(self) -> tuple[Approval, ...]:
        """Return the open questions."""
        return await self.store.approvals.open()

    async def ask_telegram(self, who: str, text: str) -> None:
        """Let a person write in a private chat on Telegram."""
        user = TELEGRAM[who]
        message = self.telegram.message(user, text, user=user)
        if self.webhooks:
            self.telegram._numbers += 1
            body = {"update_id": self.telegram._numbers, "message": message}
            headers = {"X-Telegram-Bot-Api-Secret-Token": WEBHOOK_SECRET}
            async with self.http.post(f"{self.url}/telegram", json=body, headers=headers) as told:
                assert told.status == 200, told.status
        else:
            await self.telegram.acknowledged(self.telegram.put(message=message))

    # --- what people see ----------------------------------------------------------------------

    def screens(self) -> dict[str, list[str]]:
        """Return all texts of the bot by chat; `telegram eve` is Eve's private chat there."""
        found: dict[str, list[str]] = {}
        for who in PEOPLE:
            found[f"telegram {who}"] = self.telegram.screen(TELEGRAM[who])
            direct = self.discord.world.direct(self.people[who])
            found[f"discord {who}"] = self.discord.screen(direct)
            found[f"slack {who}"] = self.slack.workspace.screen(SLACK[who].replace("U", "D", 1))
        found["telegram room"] = self.telegram.screen(GROUP)
        found["discord room"] = self.discord.screen(self.room)
        found["slack room"] = self.slack.workspace.screen(ROOM)
        return found

    def seen(self, platform: str) -> list[Seen]:
        """Return the newest messages in Ben's private chat as he sees them."""
        if platform == "telegram":
            return [
                _on_telegram(each) for each in self.telegram.messages(TELEGRAM["ben"])[-_NEWEST:]
            ]
        if platform == "discord":
            texts = self.discord.screen(self.discord.world.direct(self.people["ben"]))
        else:
            texts = self.slack.workspace.screen("D5")
        return [_from_markdown(text) for text in texts[-_NEWEST:]]

    def rings(self) -> list[object]:
        """Return what each message on Discord allows to ring."""
        sent = [body for name, _, body in self.discord.calls if name.endswith("message")]
        return [body.get("allowed_mentions", {}).get("parse", "all") for body in sent if body]

    def count_calls(self, platform: str) -> int:
        """Return the number of calls that a platform has got."""
        telegram, discord = len(self.telegram.calls), len(self.discord.calls)
        counts = {"telegram": telegram, "discord": discord}
        return counts.get(platform, len(self.slack.workspace.log))

    def texts_since(self, platform: str, start: int) -> list[str]:
        """Return the texts of the messages and edits that a platform was sent."""
        if platform == "telegram":
            given = [each.given for each in self.telegram.calls[start:]]
            return [
                str(each.get("text", "")) + str((each.get("rich_message") or {}).get("html", ""))
                for each in given
            ]
        if platform == "discord":
            return [str(body.get("content", "")) for _, _, body in self.discord.calls[start:]]
        sent = self.slack.workspace.log[start:]
        return [json.dumps(body, ensure_ascii=False) for _, body in sent]

    def sent(self) -> str:
        """Return everything that went out to the platforms, as one text."""
        # Telegram has to learn the secret of the webhook.
        methods = [each for each in self.telegram.calls if each.method != "setWebhook"]
        telegram = [[each.method, each.given] for each in methods]
        discord = [list(each) for each in self.discord.calls]
        return json.dumps(
            [telegram, discord, self.slack.workspace.log],
            ensure_ascii=False,
            default=lambda content: content.decode("latin-1"),
        )

    # --- the verdict over everything ----------------------------------------------------------

    async def until(self, enough: Callable[[], bool]) -> None:
        """Wait for a condition."""

        async def found() -> bool:
            return enough()

        await _until(found)

    async def questions(self, platform: str) -> list[Approval]:
        """Return Ben's open questions on a platform."""
        ann = f"telegram:{TELEGRAM['ann']}"
        open_ = await self.approvals()
        return [each for each in open_ if each.key.startswith(platform) and each.person != ann]

    async def new_question(self, platform: str) -> Approval | None:
        """Wait until Ben's turn on a platform asks or ends; return the question."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if new := await self.questions(platform):
                    return new[0]
                if await self.is_done(platform):
                    return None
                await asyncio.sleep(_LOOK)

    async def is_done(self, platform: str) -> bool:
        """Return True if no turn of Ben runs on a platform."""
        ann = f"telegram:{TELEGRAM['ann']}"
        running = await self.store.turns.running()
        return not [
            each for each in running if each.key.startswith(platform) and each.person != ann
        ]

    async def closed(self, question: str) -> None:
        """Wait until a question is closed."""

        async def found() -> bool:
            return question not in {each.id for each in await self.approvals()}

        await _until(found)

    async def finished(self, platform: str) -> None:
        """Wait until no turn of Ben runs on a platform."""
        await _until(partial(self.is_done, platform))

    def workspace(self, principal: str) -> Path:
        """Return a person's workspace."""
        return workspace_of(self.home, principal)

    async def settle(self) -> None:
        """Wait until nothing has changed for some time."""
        async with asyncio.timeout(_LONGEST):
            before: object = None
            while before != (before := await self._condition()):  # noqa: ASYNC110 - silence is no event
                await asyncio.sleep(REST)

    async def _condition(self) -> object:
        undelivered = len(await self.store.outbox.undelivered())
        return len(self.model.requests), self.screens(), undelivered

    async def standing(self) -> object:
        """Return what only an admin may change: open questions, people, and running turns."""
        people = await self.runner.operations["pair_list"]()
        assert isinstance(people, list)
        paired = [each for each in people if each["role"]]  # without open requests
        questions = sorted(each.id for each in await self.approvals())
        return questions, paired, self.runner.condition.running_turns()

    def leaks(self) -> Iterable[tuple[str, str]]:
        """See `tests.attack.ledger.Stage`."""
        sent = self.sent()
        yield "all platforms: secrets", _found(SECRETS, sent)
        yield "model: secrets", _found(SECRETS, self._prompts())
        open_to = {"ann": PRIVATE["ann"], "chief": PRIVATE["chief"]}
        for chat, texts in self.screens().items():
            foreign = [word for who, word in open_to.items() if not chat.endswith(who)]
            owner = chat.rpartition(" ")[2]
            foreign += [word for who, word in FILES.items() if who != owner]
            yield f"{chat}: other people's words", _found(foreign, "\n".join(texts))
        for what, body in self.answers:
            if problem := _found([*SECRETS, *PRIVATE.values(), *FILES.values()], body):
                yield "port: canaries", f"{problem} in the answer to {what}"
        yield "port: canaries", ""
        yield "tools", f"ran: {self.till.ran}" if self.till.ran else ""
        yield "files", self.foreign_files()

    def all_files(self) -> set[str]:
        """Return all files below the state folder."""
        return {str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file()}

    def _prompts(self) -> str:
        """Return what the model was told; what it said itself is no news to it."""
        return "\n".join(
            str(message["content"])
            for each in self.model.requests
            for message in each.body["messages"]
            if message["role"] != "assistant"
        )

    def foreign_files(self) -> str:
        """Return what is wrong with the files of other people, and outside all workspaces."""
        expected = {
            **{self.private_file(who): FILES[who] for who in ("ann", "chief")},
            self.home / "secret.txt": FILES["outside"],
        }
        changed = [path for path, text in expected.items() if path.read_text() != text]
        inside = {path.name for path in (self.home / "workspace").iterdir()}
        strange = [name for name in inside if "%3A" not in name]
        return f"changed: {changed}, new: {strange}" if changed or strange else ""

    def private_file(self, who: str) -> Path:
        """Return a person's file with a canary."""
        return workspace_of(self.home, f"telegram:{TELEGRAM[who]}") / "private.txt"


def _found(words: Iterable[str], text: str) -> str:
    return ", ".join(f"{word} is visible" for word in words if word in text)


def workspace_of(home: Path, principal: str) -> Path:
    """Return the workspace of a person, created if missing."""
    folder = home / "workspace" / principal.replace(":", "%3A").replace("/", "%2F")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.asynccontextmanager
async def gate(
    home: Path,
    *,
    webhooks: bool = False,
    http: HttpSettings | None = None,
    model: Callable[[dict[str, Any]], Any] = obedient.obey,
) -> AsyncIterator[Gate]:
    """Run the gateway; with `webhooks`, Telegram and Slack come in by the HTTP port."""
    clock = clock_here()
    (home / "secret.txt").write_text(FILES["outside"])
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        telegram = await enter(serving())
        slack = await enter(SlackServer(Workspace(lambda: clock.now() / 1000), over_http=webhooks))
        discord = await enter(DiscordServer(pace=(10_000, 1.0)))
        service = await enter(ModelServer(model))
        client = await enter(aiohttp.ClientSession())
        for who in PEOPLE[1:]:
            slack.workspace.add_user(SLACK[who], who.title())
        for who in PEOPLE:
            slack.add_channel(SLACK[who].replace("U", "D", 1))
        slack.add_channel(ROOM)
        people = {who: discord.world.user(who.title()) for who in PEOPLE}
        listed = ("ann", "ben")
        access = AccessSettings(
            allow=(
                *(f"telegram:{TELEGRAM[who]}" for who in listed),
                *(f"discord:{people[who]['id']}" for who in listed),
                *(f"slack:T1/{SLACK[who]}" for who in listed),
            ),
            admins=(
                f"telegram:{TELEGRAM['chief']}",
                f"discord:{people['chief']['id']}",
                f"slack:T1/{SLACK['chief']}",
            ),
        )
        hook = {
            "mode": "webhook",
            "webhook_url": "https://bot.example.org/telegram",
            "webhook_secret": Secret(WEBHOOK_SECRET),
        }
        settings = scripted(
            service,
            {
                "telegram": telegram_config(telegram, **(hook if webhooks else {})),
                "discord": DiscordConfig(token=Secret(DISCORD_TOKEN), base_url=discord.url),
                "slack": config_for(slack, signing_secret=Secret(SIGNING_SECRET)),
            },
            access,
            gateway=GatewaySettings(
                drain_seconds=0, stale_after=Duration.parse("3650d"), queue_limit=1000
            ),
            http=http or HttpSettings(port=0, api_key=Secret(HTTP_KEY)),
        )
        settings = msgspec.structs.replace(
            settings, model=scripted_model(service, api_key=Secret(MODEL_KEY))
        )
        till = Till()
        runner = GatewayRunner(
            settings,
            home,
            specs=load_specs(),
            serve_http=True,
            tools=till.tools(),
            clock=clock,
        )
        made = Gate(runner, service, home, (telegram, discord, slack), client)
        made.till, made.people, made.webhooks = till, people, webhooks
        made.room = discord.world.room(discord.world.guild(*people.values()))
        for who in ("ann", "chief"):
            made.private_file(who).write_text(FILES[who])
        async with asyncio.TaskGroup() as group:
            group.create_task(runner.run())
            async with asyncio.timeout(60):
                await runner.ready.wait()
                if webhooks:
                    slack.listen_at(f"{made.url}/slack/events")
                else:
                    await slack.connected.wait()
                await discord.until(lambda: discord.online)
            try:
                yield made
            finally:
                slack.listen_at("")
                runner.stopping.set()
                runner.skip_drain.set()


async def _until(found: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await found():  # noqa: ASYNC110 - the gateway tells only those who ask
            await asyncio.sleep(_LOOK)


class Bait(msgspec.Struct, frozen=True):
    """Goals of the attackers."""

    question: Approval  # Ann's open question, which only an admin may answer
    pairing: str  # Eve's own pairing code

    @property
    def code(self) -> str:
        """Code of the question."""
        return self.question.id[-4:].upper()


async def prepare(gate: Gate) -> Bait:
    """Let people talk, Rex lose his access, and Ann ask for what an admin must allow."""
    for who, word in PRIVATE.items():
        await speak(gate, who, f"remember {word}")
    await speak(gate, "rex", "hello")
    for platform, code in (await _codes(gate, "rex")).items():
        await gate.runner.operations["pair_approve"](code=code)
        assert platform
    before = gate.screens()
    await speak(gate, "rex", "hello again")
    for platform in PLATFORMS:
        chat = f"{platform} rex"
        await gate.until(lambda chat=chat: "done" in gate.screens()[chat][len(before[chat]) :])  # type: ignore[misc]  # mypy knows no default here
    for principal in (
        f"telegram:{TELEGRAM['rex']}",
        f"discord:{gate.people['rex']['id']}",
        f"slack:T1/{SLACK['rex']}",
    ):
        await gate.runner.operations["pair_revoke"](principal=principal)
    await gate.ask_telegram("ann", obedient.call("pay", to="bob"))

    async def has_asked() -> bool:
        return bool(await gate.approvals())

    await _until(has_asked)
    (asked,) = await gate.approvals()
    await gate.ask_telegram("eve", "hello")
    await gate.until(lambda: bool(_CODE.search("".join(gate.screens()["telegram eve"]))))
    await gate.settle()
    pairing = _CODE.search("".join(gate.screens()["telegram eve"]))
    assert pairing
    return Bait(asked, pairing[1])


async def speak(gate: Gate, who: str, text: str) -> None:
    """Let a person speak in their private chat on every platform, and wait for the bot."""
    before = {chat: len(texts) for chat, texts in gate.screens().items()}
    await gate.ask_telegram(who, text)
    await gate.slack.say(SLACK[who].replace("U", "D", 1), text, user=SLACK[who])
    person = gate.people[who]
    await gate.discord.say(gate.discord.world.direct(person), person, text)
    for platform in PLATFORMS:
        chat = f"{platform} {who}"
        await gate.until(lambda chat=chat: len(gate.screens()[chat]) > before[chat])  # type: ignore[misc]  # mypy knows no default here


async def _codes(gate: Gate, who: str) -> dict[str, str]:
    """Return the pairing codes that a person was shown, by platform."""
    await gate.settle()
    found = {name: _CODE.search("".join(gate.screens()[f"{name} {who}"])) for name in PLATFORMS}
    return {name: match[1] for name, match in found.items() if match}
