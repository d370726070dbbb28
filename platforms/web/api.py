"""HTTP endpoints of the web page."""

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
    RowAuthor,
    Sender,
    Surroundings,
    Text,
)
from platforms.web.attachments import MAX_FILE_BYTES, UploadFolder, UploadTooLarge
from platforms.web.door import VISIT_LIFETIME_MS, WebLogin, csrf_token, is_same_secret
from platforms.web.files import PAGE_HEADERS, PageFiles
from platforms.web.hub import PageHub
from platforms.web.stream import EventStream
from platforms.web.wire import (
    INLINE_MEDIA_TYPES,
    MAX_CHAT_LENGTH,
    MIN_CHAT_LENGTH,
    ButtonPress,
    NewMessage,
    UploadRef,
    chat_data,
    encode_error,
    is_chat,
    normalize_text,
    row_data,
)
from sessions.values.size import format_size

_CSRF_HEADER = "X-Holdfast-CSRF"
_OWNER = Sender(id="owner", name="owner")

_MAX_BODY_BYTES = 1_000_000  # of a request's body
_MAX_ROWS = 5_000  # in one request
_MAX_CHATS = 500
_STORE_TIMEOUT_SECONDS = 30.0

_UPLOAD_TIMEOUT_SECONDS = 600.0
_FILE_HEADERS = {
    # Opened in a browser, the file can do nothing here, whatever the content.
    "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
    "cache-control": "private, max-age=86400, immutable",
    "cross-origin-resource-policy": "same-origin",
}

_NUMBER = re.compile(r"[0-9]{1,18}")

_log = logging.getLogger(__name__)

_Shape = TypeVar("_Shape")
WebResponse = Response | EventStream
WebHandler = Callable[[Request], Awaitable[WebResponse]]


class _RequestRefused(Exception):
    """A request to be answered with an error status and a sentence."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class WebApi:
    """Endpoints of the page; all but the sign-in need a session cookie."""

    def __init__(
        self,
        surroundings: Surroundings,
        login: WebLogin,
        hub: PageHub,
        keepalive: float,
        attachments: UploadFolder,
    ) -> None:
        self._clock = surroundings.clock
        self._archive = surroundings.archive
        self._account = surroundings.account
        self._login = login
        self._hub = hub
        self._keepalive = keepalive
        self._files = PageFiles()
        self._attachments = attachments
        self._inbox: Inbox | None = None

    @contextmanager
    def receiving(self, inbox: Inbox) -> Iterator[None]:
        """Pass messages from the page to this inbox for the duration of the block."""
        self._inbox = inbox
        try:
            yield
        finally:
            self._inbox = None

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes of the page."""
        inside, chat = self._require_login, "/web/chats/{chat}"
        return [
            Route("/", self._index),
            Route("/enter/{token}", self._enter),
            Route("/web/static/{name}", self._files.serve),
            Route("/web/session", inside(self._session)),
            Route("/web/session", inside(self._leave, changes=True), methods=["DELETE"]),
            Route("/web/chats", inside(self._chats)),
            Route(f"{chat}/rows", inside(self._rows)),
            Route(f"{chat}/events", inside(self._events)),
            Route(f"{chat}/messages", inside(self._message, changes=True), methods=["POST"]),
            Route(f"{chat}/files", inside(self._save_upload, changes=True), methods=["POST"]),
            Route(f"{chat}/files/{{seq:int}}/{{place:int}}", inside(self._send_file)),
            Route(f"{chat}/actions", inside(self._action, changes=True), methods=["POST"]),
        ]

    async def _index(self, request: Request) -> Response:
        """Return the page, or the instructions for signing in."""
        if await self._login.is_signed_in(await self._cookie(request)):
            return self._files.page("index.html")
        return self._files.page("door.html")

    async def _enter(self, request: Request) -> Response:
        """Exchange a link for a cookie.

        A HEAD request, such as a link preview, does not use the link.
        """
        if request.method == "HEAD":
            return Response(headers=PAGE_HEADERS)
        visit = await self._login.redeem_link(request.path_params["token"])
        if visit is None:
            if await self._login.is_signed_in(await self._cookie(request)):
                return _redirect_to_index()  # the same person opened the link again
            return self._files.page("spent.html", 403)
        response = _redirect_to_index()
        response.set_cookie(
            await self._login.cookie_name(),
            visit,
            max_age=VISIT_LIFETIME_MS // 1000,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    async def _session(self, request: Request) -> WebResponse:
        return _json(200, {"csrf": csrf_token(await self._cookie(request))})

    async def _leave(self, request: Request) -> WebResponse:
        await self._login.sign_out(await self._cookie(request))
        self._hub.on_sign_out()  # other tabs of the same browser end as well
        response = Response(status_code=204)
        response.delete_cookie(await self._login.cookie_name(), httponly=True, samesite="strict")
        return response

    async def _chats(self, _: Request) -> WebResponse:
        async with asyncio.timeout(_STORE_TIMEOUT_SECONDS):
            chats = await self._archive.chats("web", _MAX_CHATS)
        return _json(200, {"chats": [chat_data(chat) for chat in chats if is_chat(chat.chat)]})

    async def _rows(self, request: Request) -> WebResponse:
        """Return the newest rows, as many as requested."""
        limit = min(_parse_number(request.query_params.get("limit")) or 100, _MAX_ROWS)
        async with asyncio.timeout(_STORE_TIMEOUT_SECONDS):
            rows = await self._archive.transcript(self._address(request), 0, limit)
        return _json(200, {"rows": [row_data(row) for row in rows]})

    async def _events(self, request: Request) -> WebResponse:
        self._require_inbox()
        after = _parse_number(
            request.headers.get("last-event-id") or request.query_params.get("after")
        )
        cookie = await self._cookie(request)
        return EventStream(
            address=self._address(request),
            archive=self._archive,
            hub=self._hub,
            after=after,
            keepalive=self._keepalive,
            is_signed_in=lambda: self._login.is_signed_in(cookie),
        )

    async def _message(self, request: Request) -> WebResponse:
        address, body = self._address(request), await _read_body(request, NewMessage)
        text = normalize_text(body.text)
        files = tuple(self._attached(file) for file in body.files)
        if not text.strip() and not files:
            raise _RequestRefused(400, "empty", "There is nothing in this message.")
        return await self._submit(
            InboundMessage(
                id=body.id,
                at=self._clock.now(),
                address=address,
                sender=_OWNER,
                parts=(*((Text(text),) if text.strip() else ()), *files),
                direct=True,
                addressed=True,
            )
        )

    def _attached(self, file: UploadRef) -> File:
        path = self._attachments.path_of(file.ref)
        if path is None:
            raise _RequestRefused(
                400, "no_file", f"{file.name} did not arrive. Please attach it again."
            )
        return File(normalize_text(file.name), file.type, ref=file.ref, size=path.stat().st_size)

    async def _save_upload(self, request: Request) -> WebResponse:
        """Store a file; a following message refers to the file."""
        self._address(request)
        try:
            async with asyncio.timeout(_UPLOAD_TIMEOUT_SECONDS):
                ref, size = await self._attachments.save(request.stream())
        except UploadTooLarge:
            raise _RequestRefused(
                413, "too_long", f"A file can have up to {format_size(MAX_FILE_BYTES)} here."
            ) from None
        except TimeoutError:
            raise _RequestRefused(408, "too_slow", "The file took too long to arrive.") from None
        except OSError as error:
            _log.warning("web: an uploaded file could not be stored: %s", error)
            sentence = f"The file could not be stored: {error.strerror}."
            raise _RequestRefused(507, "no_room", sentence) from None
        return _json(201, {"ref": ref, "size": size})

    async def _send_file(self, request: Request) -> WebResponse:
        """Return a file of a message: an attachment, or a file sent by the agent."""
        seq, place = request.path_params["seq"], request.path_params["place"]
        async with asyncio.timeout(_STORE_TIMEOUT_SECONDS):
            rows = await self._archive.transcript(self._address(request), seq - 1 or -1, 1)
        files = rows[0].files if rows and rows[0].seq == seq else ()
        file = files[place] if place < len(files) else None
        path = file and self._path_of(rows[0].author, file)
        if file is None or path is None:
            raise _RequestRefused(404, "no_file", "This file is no longer available.")
        return FileResponse(
            path,
            media_type=file.media_type,
            filename=file.name,
            content_disposition_type="inline"
            if file.media_type in INLINE_MEDIA_TYPES
            else "attachment",
            headers=_FILE_HEADERS,
        )

    def _path_of(self, author: RowAuthor, file: File) -> Path | None:
        if author is RowAuthor.USER:
            return self._attachments.path_of(file.ref)
        path = Path(file.ref)
        return path if path.is_file() else None

    async def _action(self, request: Request) -> WebResponse:
        address, body = self._address(request), await _read_body(request, ButtonPress)
        return await self._submit(
            InboundAction(
                id=body.id,
                at=self._clock.now(),
                address=address,
                sender=_OWNER,
                action=body.action,
                message=body.message,
                direct=True,
            )
        )

    async def _submit(self, event: Inbound) -> WebResponse:
        """Pass an event to the gateway; acknowledge only what is stored."""
        inbox = self._require_inbox()
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_SECONDS):
                accepted = await inbox(event)
        except Exception:  # noqa: BLE001 - the gateway's own failures, whatever they are
            # The page keeps an unacknowledged message for a repetition under the same id.
            _log.exception("web: a message from the page could not be stored")
            sentence = "Your message could not be stored just now. Please send it again."
            raise _RequestRefused(503, "not_stored", sentence) from None
        if accepted is Accepted.IGNORED:
            sentence = "Your message was not accepted: the configuration does not allow web:owner."
            raise _RequestRefused(403, "not_allowed", sentence)
        self._hub.on_user_message(event.address.chat)
        return _json(202 if accepted is Accepted.STORED else 200, {"accepted": accepted.value})

    def _require_inbox(self) -> Inbox:
        if self._inbox is None:
            sentence = "Holdfast is starting or stopping. Please try again in a moment."
            raise _RequestRefused(503, "not_ready", sentence)
        return self._inbox

    def _address(self, request: Request) -> Address:
        chat = request.path_params["chat"]
        if not is_chat(chat):
            sentence = (
                f"The name of a conversation has {MIN_CHAT_LENGTH} to {MAX_CHAT_LENGTH} letters, "
                "digits, - or _."
            )
            raise _RequestRefused(404, "no_chat", sentence)
        return Address(platform="web", chat=chat, account=self._account)

    def _require_login(self, handler: WebHandler, *, changes: bool = False) -> WebHandler:
        """Allow only the signed-in owner; with `changes`, also require the CSRF token."""

        async def endpoint(request: Request) -> WebResponse:
            try:
                cookie = await self._cookie(request)
                if not await self._login.is_signed_in(cookie):
                    sentence = "To sign in, open the link that `holdfast link` prints."
                    raise _RequestRefused(401, "no_visit", sentence)  # noqa: TRY301 - handled with all others
                if changes and not is_same_secret(
                    request.headers.get(_CSRF_HEADER, ""), csrf_token(cookie)
                ):
                    sentence = "This request did not come from the page. Please reload the page."
                    raise _RequestRefused(403, "csrf", sentence)  # noqa: TRY301
                return await handler(request)
            except _RequestRefused as refusal:
                return Response(
                    encode_error(refusal.kind, str(refusal)),
                    refusal.status,
                    headers={"cache-control": "no-store"},
                    media_type="application/json",
                )

        return endpoint

    async def _cookie(self, request: Request) -> str:
        return request.cookies.get(await self._login.cookie_name(), "")


def _redirect_to_index() -> Response:
    return Response(status_code=303, headers={**PAGE_HEADERS, "location": "/"})


def _json(status: int, data: object) -> Response:
    return Response(
        msgspec.json.encode(data),
        status,
        headers={"cache-control": "no-store"},
        media_type="application/json",
    )


def _parse_number(text: str | None) -> int:
    return int(text) if text and _NUMBER.fullmatch(text) else 0


async def _read_body(request: Request, shape: type[_Shape]) -> _Shape:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MAX_BODY_BYTES:
            raise _RequestRefused(
                413,
                "too_long",
                f"This is too long: a message can have up to {format_size(_MAX_BODY_BYTES)}.",
            )
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _RequestRefused(400, "malformed", f"The request is not valid: {error}.") from error
