"""What the page asks of the daemon, over HTTP."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from platforms.core.contract import (
    Accepted,
    Address,
    File,
    Inbound,
    InboundAction,
    InboundMessage,
    Inbox,
    Sender,
    Surroundings,
    Text,
)
from platforms.web.attachments import LARGEST, Attachments, TooLarge
from platforms.web.door import VISIT_LIFE, Door, csrf_token, same
from platforms.web.files import PAGE_HEADERS, Files
from platforms.web.hub import Hub
from platforms.web.stream import EventStream
from platforms.web.wire import (
    SHOWN,
    Attached,
    NewMessage,
    Press,
    chat_data,
    clean,
    failure,
    is_chat,
    row_data,
)

CSRF_HEADER = "X-Holdfast-CSRF"
OWNER = Sender(id="owner", name="owner")

_MOST_BYTES = 1_000_000  # of a request's body
_MOST_ROWS = 5_000  # in one look back
_MOST_CHATS = 500
_STORE_TIMEOUT = 30.0

_UPLOAD_TIMEOUT = 600.0
_FILE_HEADERS = {
    # Whatever is in the file: opened in a browser it can do nothing here.
    "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
    "cache-control": "private, max-age=86400, immutable",
    "cross-origin-resource-policy": "same-origin",
}

_NUMBER = re.compile(r"[0-9]{1,18}")

_log = logging.getLogger(__name__)

_Shape = TypeVar("_Shape")
Answer = Response | EventStream
Handler = Callable[[Request], Awaitable[Answer]]


class _Refused(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Api:
    """Endpoints of the page, each behind the door."""

    def __init__(
        self,
        surroundings: Surroundings,
        door: Door,
        hub: Hub,
        keepalive: float,
        attachments: Attachments,
    ) -> None:
        self._clock = surroundings.clock
        self._archive = surroundings.archive
        self._account = surroundings.account
        self._door = door
        self._hub = hub
        self._keepalive = keepalive
        self._files = Files()
        self._attachments = attachments
        self._inbox: Inbox | None = None

    @contextmanager
    def receiving(self, inbox: Inbox) -> Iterator[None]:
        """Hand what people send to this inbox, inside of the block."""
        self._inbox = inbox
        try:
            yield
        finally:
            self._inbox = None

    def routes(self) -> Sequence[BaseRoute]:
        """List what is served."""
        inside, chat = self._inside, "/web/chats/{chat}"
        return [
            Route("/", self._front),
            Route("/enter/{token}", self._enter),
            Route("/web/static/{name}", self._files.serve),
            Route("/web/session", inside(self._session)),
            Route("/web/session", inside(self._leave, changes=True), methods=["DELETE"]),
            Route("/web/chats", inside(self._chats)),
            Route(f"{chat}/rows", inside(self._rows)),
            Route(f"{chat}/events", inside(self._events)),
            Route(f"{chat}/messages", inside(self._message, changes=True), methods=["POST"]),
            Route(f"{chat}/files", inside(self._take_file, changes=True), methods=["POST"]),
            Route(f"{chat}/files/{{seq:int}}/{{place:int}}", inside(self._give_file)),
            Route(f"{chat}/actions", inside(self._action, changes=True), methods=["POST"]),
        ]

    async def _front(self, request: Request) -> Response:
        """Show the page, or how to get in."""
        if await self._door.admits(await self._cookie(request)):
            return self._files.page("index.html")
        return self._files.page("door.html")

    async def _enter(self, request: Request) -> Response:
        """Turn a link into a cookie. A HEAD request, such as a preview makes, spends nothing."""
        if request.method == "HEAD":
            return Response(headers=PAGE_HEADERS)
        visit = await self._door.enter(request.path_params["token"])
        if visit is None:
            if await self._door.admits(await self._cookie(request)):
                return _to_front()  # opened a second time by the same person
            return self._files.page("spent.html", 403)
        response = _to_front()
        response.set_cookie(
            await self._door.cookie_name(),
            visit,
            max_age=VISIT_LIFE // 1000,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    async def _session(self, request: Request) -> Answer:
        return _json(200, {"csrf": csrf_token(await self._cookie(request))})

    async def _leave(self, request: Request) -> Answer:
        await self._door.leave(await self._cookie(request))
        self._hub.left()  # other tabs of the same browser end, too
        response = Response(status_code=204)
        response.delete_cookie(await self._door.cookie_name(), httponly=True, samesite="strict")
        return response

    async def _chats(self, _: Request) -> Answer:
        async with asyncio.timeout(_STORE_TIMEOUT):
            chats = await self._archive.chats("web", _MOST_CHATS)
        return _json(200, {"chats": [chat_data(chat) for chat in chats if is_chat(chat.chat)]})

    async def _rows(self, request: Request) -> Answer:
        """Look back: the newest rows, as many as asked for."""
        limit = min(_number(request.query_params.get("limit")) or 100, _MOST_ROWS)
        async with asyncio.timeout(_STORE_TIMEOUT):
            rows = await self._archive.transcript(self._address(request), 0, limit)
        return _json(200, {"rows": [row_data(row) for row in rows]})

    async def _events(self, request: Request) -> Answer:
        self._require_inbox()
        after = _number(request.headers.get("last-event-id") or request.query_params.get("after"))
        cookie = await self._cookie(request)
        return EventStream(
            self._address(request),
            self._archive,
            self._hub,
            after,
            self._keepalive,
            admitted=lambda: self._door.admits(cookie),
        )

    async def _message(self, request: Request) -> Answer:
        address, body = self._address(request), await _body(request, NewMessage)
        text = clean(body.text)
        files = tuple(self._attached(file) for file in body.files)
        if not text.strip() and not files:
            raise _Refused(400, "empty", "There is nothing in this message.")
        return await self._hand_in(
            InboundMessage(
                id=body.id,
                at=self._clock.now(),
                address=address,
                sender=OWNER,
                parts=(*((Text(text),) if text.strip() else ()), *files),
                direct=True,
                addressed=True,
            )
        )

    def _attached(self, file: Attached) -> File:
        path = self._attachments.place(file.ref)
        if path is None:
            raise _Refused(400, "no_file", f"{file.name} did not arrive. Please attach it again.")
        return File(clean(file.name), file.type, file.ref, path.stat().st_size)

    async def _take_file(self, request: Request) -> Answer:
        """Keep a file; the message that follows names it."""
        self._address(request)
        try:
            async with asyncio.timeout(_UPLOAD_TIMEOUT):
                ref, size = await self._attachments.take(request.stream())
        except TooLarge:
            most = LARGEST // 1_000_000
            raise _Refused(413, "too_long", f"A file may have {most} MB here.") from None
        except TimeoutError:
            raise _Refused(408, "too_slow", "The file did not arrive in time.") from None
        except OSError as error:
            _log.warning("A file from the page could not be kept: %s", error)
            sentence = f"The file could not be kept: {error.strerror}."
            raise _Refused(507, "no_room", sentence) from None
        return _json(201, {"ref": ref, "size": size})

    async def _give_file(self, request: Request) -> Answer:
        """Give a file of a message: one that was attached here, or one that the agent sent."""
        seq, place = request.path_params["seq"], request.path_params["place"]
        async with asyncio.timeout(_STORE_TIMEOUT):
            rows = await self._archive.transcript(self._address(request), seq - 1 or -1, 1)
        files = rows[0].files if rows and rows[0].seq == seq else ()
        file = files[place] if place < len(files) else None
        path = file and self._place_of(rows[0].author, file)
        if file is None or path is None:
            raise _Refused(404, "no_file", "This file is not there any more.")
        return FileResponse(
            path,
            media_type=file.media_type,
            filename=file.name,
            content_disposition_type="inline" if file.media_type in SHOWN else "attachment",
            headers=_FILE_HEADERS,
        )

    def _place_of(self, author: str, file: File) -> Path | None:
        if author == "user":
            return self._attachments.place(file.ref)
        path = Path(file.ref)
        return path if path.is_file() else None

    async def _action(self, request: Request) -> Answer:
        address, body = self._address(request), await _body(request, Press)
        return await self._hand_in(
            InboundAction(
                id=body.id,
                at=self._clock.now(),
                address=address,
                sender=OWNER,
                action=body.action,
                message=body.message,
                direct=True,
            )
        )

    async def _hand_in(self, event: Inbound) -> Answer:
        """Give an event to the gateway; only what is stored is acknowledged."""
        inbox = self._require_inbox()
        try:
            async with asyncio.timeout(_STORE_TIMEOUT):
                accepted = await inbox(event)
        except Exception:  # noqa: BLE001 - the gateway's own failures, whatever they are
            # Whatever it was: nothing is acknowledged, the page keeps the words and repeats them
            # under the same id.
            _log.exception("A message from the page could not be stored.")
            sentence = "Your message could not be stored just now. Please send it again."
            raise _Refused(503, "not_stored", sentence) from None
        if accepted is Accepted.IGNORED:
            sentence = "This was not taken: the configuration does not let web:owner in."
            raise _Refused(403, "not_allowed", sentence)
        self._hub.said(event.address.chat)
        return _json(202 if accepted is Accepted.STORED else 200, {"accepted": accepted.value})

    def _require_inbox(self) -> Inbox:
        if self._inbox is None:
            sentence = "Holdfast is starting or stopping. Please try again in a moment."
            raise _Refused(503, "not_ready", sentence)
        return self._inbox

    def _address(self, request: Request) -> Address:
        chat = request.path_params["chat"]
        if not is_chat(chat):
            sentence = "A conversation is named by 4 to 40 letters, digits, - or _."
            raise _Refused(404, "no_chat", sentence)
        return Address(platform="web", chat=chat, account=self._account)

    def _inside(self, handler: Handler, *, changes: bool = False) -> Handler:
        """Let only the owner through; what changes something must also carry the CSRF token."""

        async def endpoint(request: Request) -> Answer:
            try:
                cookie = await self._cookie(request)
                if not await self._door.admits(cookie):
                    sentence = "Open the link that `holdfast link` prints to come in."
                    raise _Refused(401, "no_visit", sentence)  # noqa: TRY301 - one way out for all
                if changes and not same(request.headers.get(CSRF_HEADER, ""), csrf_token(cookie)):
                    sentence = "This request did not come from the page. Please load it anew."
                    raise _Refused(403, "csrf", sentence)  # noqa: TRY301
                return await handler(request)
            except _Refused as refusal:
                return Response(
                    failure(refusal.kind, str(refusal)),
                    refusal.status,
                    headers={"cache-control": "no-store"},
                    media_type="application/json",
                )

        return endpoint

    async def _cookie(self, request: Request) -> str:
        return request.cookies.get(await self._door.cookie_name(), "")


def _to_front() -> Response:
    return Response(status_code=303, headers={**PAGE_HEADERS, "location": "/"})


def _json(status: int, data: object) -> Response:
    return Response(
        msgspec.json.encode(data),
        status,
        headers={"cache-control": "no-store"},
        media_type="application/json",
    )


def _number(text: str | None) -> int:
    return int(text) if text and _NUMBER.fullmatch(text) else 0


async def _body(request: Request, shape: type[_Shape]) -> _Shape:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MOST_BYTES:
            raise _Refused(413, "too_long", "This is too long: a message may have 1 MB.")
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Refused(400, "malformed", f"The request cannot be read: {error}.") from error
