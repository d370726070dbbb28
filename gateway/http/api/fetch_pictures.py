"""Pictures that a request only points at: fetched before it is stored, so that its turn has them."""

from collections.abc import Sequence

from msgspec.structs import replace

from agent.web.errors import NotFetched
from agent.web.fetch import Fetcher
from gateway.http.api.asked import Picture, Said
from gateway.http.api.failures import unfit
from gateway.http.api.pictures import LARGEST, REMOTE, fetched, not_fetched

_ACCEPT = "image/webp, image/png, image/jpeg, image/gif"


class RemotePictures:
    """Fetches them, or refuses requests with such where there is no fetcher."""

    def __init__(self, fetcher: Fetcher | None) -> None:
        self._fetcher = fetcher

    async def fetched(self, said: Sequence[Said]) -> list[Said]:
        """Give the messages with all their pictures; raises `Refused`."""
        room = LARGEST  # for all of a request, as its body has a limit, too
        found = []
        for each in said:
            pictures = []
            for wanted in each.pictures:
                picture = await self._one(wanted, room) if wanted.url else wanted
                room -= len(picture.content) if wanted.url else 0
                pictures.append(picture)
            found.append(replace(each, pictures=tuple(pictures)))
        return found

    async def _one(self, wanted: Picture, room: int) -> Picture:
        if self._fetcher is None:
            raise unfit(REMOTE, wanted.param)
        try:
            answer = await self._fetcher.get(wanted.url, room, _ACCEPT)
        except NotFetched as error:
            raise not_fetched(wanted, str(error)) from error
        if answer.status != 200:  # noqa: PLR2004 - the one status with which a picture comes
            raise not_fetched(wanted, f"the server there answered {answer.status}")
        return fetched(wanted, answer.content)
