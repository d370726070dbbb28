"""The web page as tests play it: what a browser does, over real HTTP."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

from platforms.core.contract import Adapter, OffersLinks, PlatformSpec
from platforms.web import SPEC, WebConfig
from tests.contract.services.contract import Place, Seen, Words
from tests.contract.services.local import LocalService


class _Page:
    """One conversation as the page shows it."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.gone: set[str] = set()
        self.drafts: dict[str, str] = {}
        self.files: dict[str, bytes] = {}  # by row
        self.last = 0

    def take(self, name: str, data: dict[str, Any]) -> None:
        match name:
            case "row":
                self.rows[data["id"]] = data
                self.last = max(self.last, data["seq"])
            case "edit" if data["id"] in self.rows:
                self.rows[data["id"]] |= {"text": data["text"], "buttons": data["buttons"]}
            case "delete":
                self.gone.add(data["id"])
            case "draft" if data.get("gone"):
                self.drafts.pop(data["id"], None)
            case "draft":
                before = self.drafts.get(data["id"], "")
                self.drafts[data["id"]] = data["text"] if "text" in data else before + data["add"]
            case "ready":
                kept = set(data["drafts"])
                self.drafts = {key: text for key, text in self.drafts.items() if key in kept}
                newest = data["rows"]
                self.gone |= {
                    row["id"]
                    for row in self.rows.values()
                    if row["seq"] >= newest["first"] and row["id"] not in newest["ids"]
                }
            case _:
                pass

    def seen(self) -> list[Seen]:
        rows = sorted(self.rows.values(), key=lambda row: int(row["seq"]))
        lasting = [
            Seen(
                row["text"],
                row["id"],
                tuple(each["label"] for each in row["buttons"]),
                file="".join(file["name"] for file in row["files"]),
                content=self.files.get(row["id"], b""),
            )
            for row in rows
            if row["author"] != "user" and row["id"] not in self.gone
        ]
        return [*lasting, *(Seen(text, passing=True) for text in self.drafts.values() if text)]


_RETRY = 0.05  # seconds between two attempts to reach a port where nobody listens


class WebService(LocalService):
    """The owner in a browser."""

    name = "web"
    served = True
    sends_files = True

    def __init__(self) -> None:
        super().__init__()
        self._pages: dict[Place, _Page] = {self.direct: _Page()}
        self._http: aiohttp.ClientSession | None = None
        self._url = self._csrf = ""
        self._streams: dict[Place, aiohttp.ClientResponse] = {}
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._opened = 0
        self._attached: dict[str, tuple[str, bytes, str]] = {}  # by message

    def spec(self) -> PlatformSpec:
        return SPEC

    def config(self) -> WebConfig:
        return WebConfig()

    @contextlib.asynccontextmanager
    async def meeting(self, adapter: Adapter, url: str) -> AsyncIterator[None]:
        assert isinstance(adapter, OffersLinks)
        self._url = url.rstrip("/")
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as http, asyncio.TaskGroup() as group:
            async with http.get(await adapter.new_link(url)) as answer:
                assert answer.status == 200, await answer.text()
            async with http.get(f"{self._url}/web/session") as answer:
                self._csrf = (await answer.json())["csrf"]
            self._http, self._group = http, group
            self._tasks = [group.create_task(self.send())]
            for place in self._pages:
                await self._open(place)
            try:
                yield
            finally:
                self._http = self._group = None
                for task in self._tasks:
                    task.cancel()
                self._streams.clear()

    async def _open(self, place: Place) -> None:
        assert self._group
        self._tasks.append(self._group.create_task(self._watch(place)))
        await self.until(lambda: place in self._streams)

    # --- what the person does

    async def look_at(self, place: Place) -> None:
        self._pages[place] = _Page()
        await self._open(place)

    async def utter(self, place: Place, words: Words) -> str:
        name = await super().utter(place, msgspec.structs.replace(words, file=None))
        if words.file:
            self._attached[name] = words.file
        return name

    async def hand_in(self, place: Place, name: str, text: str) -> bool:
        files = []
        if attached := self._attached.get(name):
            file, content, kind = attached
            ref = await self._hand_over(place, content)
            if not ref:
                return False
            files = [{"ref": ref, "name": file, "type": kind}]
        return await self._post(place, "messages", {"id": name, "text": text, "files": files})

    async def _hand_over(self, place: Place, content: bytes) -> str:
        if self._http is None:
            return ""
        url = f"{self._url}/web/chats/{place.chat}/files"
        headers = {"X-Holdfast-CSRF": self._csrf}
        with contextlib.suppress(aiohttp.ClientError):
            async with self._http.post(url, data=content, headers=headers) as answer:
                if answer.status == 201:
                    return str((await answer.json())["ref"])
        return ""

    async def press(self, place: Place, label: str) -> None:
        for row in reversed(self._pages[place].rows.values()):
            for button in row["buttons"]:
                if button["label"] == label:
                    told = {"id": self.new_name(), "action": button["action"], "message": row["id"]}
                    assert await self._post(place, "actions", told)
                    return
        msg = f"there is no button {label!r}"
        raise AssertionError(msg)

    async def _post(self, place: Place, what: str, body: dict[str, Any]) -> bool:
        if self._http is None:
            return False
        url = f"{self._url}/web/chats/{place.chat}/{what}"
        headers = {"X-Holdfast-CSRF": self._csrf}
        try:
            async with self._http.post(url, json=body, headers=headers) as answer:
                return answer.status in {200, 202}
        except aiohttp.ClientError:
            return False

    # --- what the person sees

    async def _watch(self, place: Place) -> None:
        """Follow a conversation, over as many connections as that takes."""
        page = self._pages[place]
        while self._http:
            url = f"{self._url}/web/chats/{place.chat}/events?after={page.last}"
            try:
                timeout = aiohttp.ClientTimeout(total=None)
                async with self._http.get(url, timeout=timeout) as stream:
                    if stream.status != 200:
                        return  # the gateway is ending
                    await self._follow(place, page, stream)
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(_RETRY)
            except aiohttp.ClientError:
                pass  # at once, as a browser does

    async def _follow(self, place: Place, page: _Page, stream: aiohttp.ClientResponse) -> None:
        name = ""
        async for line in stream.content:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text[7:]
            elif text.startswith("data: "):
                data = json.loads(text[6:])
                if name == "row" and data["author"] != "user" and data["files"] and self._http:
                    at = f"{self._url}/web/chats/{place.chat}/files/{data['files'][0]['at']}"
                    async with self._http.get(at) as got:
                        page.files[data["id"]] = await got.read()
                page.take(name, data)
                if name == "ready":
                    self._streams[place] = stream
                    self._opened += 1
                await self.news.tell()

    def seen(self, place: Place) -> list[Seen]:
        return self._pages[place].seen()

    async def cut(self, *, politely: bool) -> None:
        """The page is opened anew, or its connection breaks."""
        before = self._opened
        for stream in list(self._streams.values()):
            if politely:
                stream.close()
            elif stream.connection and stream.connection.transport:
                stream.connection.transport.abort()
        await self.until(lambda: self._opened >= before + len(self._streams))


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[WebService]:
    yield WebService()
