"""Pictures of a request: downloaded if given by address, and stored before the turn begins."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from msgspec.structs import replace

from agent.web.errors import FetchError
from agent.web.fetch import Fetcher
from gateway.http.api.asked import RequestMessage, RequestPicture
from gateway.http.api.failures import invalid_request
from gateway.http.api.pictures import (
    MAX_PICTURE_BYTES,
    REMOTE_NOT_ALLOWED,
    picture_not_fetched,
    with_content,
)
from platforms.core.contract import File

_ACCEPT = "image/webp, image/png, image/jpeg, image/gif"


SavePicture = Callable[[AsyncIterator[bytes]], Awaitable[tuple[str, int]]]
"""Saves the content of a picture; returns its reference and size."""


class RequestPictures:
    """Download and storage of pictures; without a fetcher, remote pictures are refused."""

    def __init__(self, fetcher: Fetcher | None, save: SavePicture) -> None:
        self._fetcher = fetcher
        self._save = save

    async def fetch_all(self, messages: Sequence[RequestMessage]) -> list[RequestMessage]:
        """Return the messages with all pictures downloaded; raises `RequestRefused`."""
        room = MAX_PICTURE_BYTES  # for all pictures of the request together
        found = []
        for each in messages:
            pictures = []
            for wanted in each.pictures:
                picture = await self._fetch(wanted, room) if wanted.url else wanted
                room -= len(picture.content) if wanted.url else 0
                pictures.append(picture)
            found.append(replace(each, pictures=tuple(pictures)))
        return found

    async def _fetch(self, wanted: RequestPicture, max_bytes: int) -> RequestPicture:
        if self._fetcher is None:
            raise invalid_request(REMOTE_NOT_ALLOWED, wanted.param)
        try:
            answer = await self._fetcher.get(wanted.url, max_bytes, _ACCEPT)
        except FetchError as error:
            raise picture_not_fetched(wanted, str(error)) from error
        if answer.status != 200:  # noqa: PLR2004 - the only status with a picture
            raise picture_not_fetched(wanted, f"the server answered {answer.status}")
        return with_content(wanted, answer.content)

    async def store_all(self, pictures: Sequence[RequestPicture]) -> tuple[File, ...]:
        """Store downloaded pictures until their turn fetches them."""
        return tuple([await self._store(each) for each in pictures])

    async def _store(self, picture: RequestPicture) -> File:
        async def pieces() -> AsyncIterator[bytes]:
            yield picture.content

        ref, size = await self._save(pieces())
        return File(picture.name, picture.media_type, ref=ref, size=size, voice=picture.voice)
