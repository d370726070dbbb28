"""Pictures that a request only points at: fetched before it is stored, so that its turn has them."""

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
    """Fetches them, or refuses requests with such where there is no fetcher."""

    def __init__(self, fetcher: Fetcher | None) -> None:
        self._fetcher = fetcher

    async def fetch_all(self, messages: Sequence[RequestMessage]) -> list[RequestMessage]:
        """Give the messages with all their pictures; raises `Refused`."""
        room = MAX_PICTURE_BYTES  # for all of a request, as its body has a limit, too
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
        if answer.status != 200:  # noqa: PLR2004 - the one status with which a picture comes
            raise picture_not_fetched(wanted, f"the server there answered {answer.status}")
        return with_content(wanted, answer.content)
