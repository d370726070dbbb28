"""Download of pictures given by address, before the request is stored and its turn begins."""

from collections.abc import Sequence

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

_ACCEPT = "image/webp, image/png, image/jpeg, image/gif"


class RemotePictures:
    """Downloader of pictures; without a fetcher, requests with remote pictures are refused."""

    def __init__(self, fetcher: Fetcher | None) -> None:
        self._fetcher = fetcher

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
