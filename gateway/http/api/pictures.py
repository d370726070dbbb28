"""Sans-IO: pictures inside of a request, as `data:` addresses, and those that lie elsewhere."""

import base64
import binascii
import re

from agent.request.pictures import BEGINNING, kind_of
from gateway.http.api.asked import Picture
from gateway.http.api.failures import Refused, unfit
from gateway.media.incoming import MOST, ending_of
from sessions.values.size import in_words

REMOTE = (
    "Pictures are not fetched from other addresses here, unless http.fetch_pictures is set; send "
    "the picture itself, as a data: address (`data:image/png;base64,…`)."
)
OTHER_KIND = "what lies there is no picture that a model can be shown (JPEG, PNG, GIF or WebP)"
LARGEST = 15_000_000  # bytes, as much as is kept of one file
# Capitals count as little as in any address; JSON Schema has no other way to say so.
_BEGINNING = (
    r"[Dd][Aa][Tt][Aa]:([Ii][Mm][Aa][Gg][Ee]/[A-Za-z0-9.+-]{1,60})(?:;[^;,]*)*"
    r";[Bb][Aa][Ss][Ee]64,"
)
_ITSELF = f"^{_BEGINNING}(?:[A-Za-z0-9+/]{{4}})*(?:[A-Za-z0-9+/]{{2}}(?:==|[A-Za-z0-9+/]=|[A-Za-z0-9+/]{{2}}))$"
_ELSEWHERE = r"[Hh][Tt][Tt][Pp][Ss]?://"
SCHEMA = {
    "type": "string",
    "description": "The picture itself, as a `data:` address; or, where `http.fetch_pictures` is set, "
    "where it lies.",
    "anyOf": [{"pattern": _ITSELF}, {"pattern": f"^{_ELSEWHERE}"}],
}
"""The forms of a picture's address, as JSON Schema has patterns."""

_DATA = re.compile(_BEGINNING)
_WEB = re.compile(_ELSEWHERE)


def picture(url: str, param: str, number: int) -> Picture:
    """Read one; `number` names it among those of the request. Raises `Refused`."""
    if number > MOST:
        msg = f"There are more than {MOST} pictures in this request."
        raise unfit(msg, param)
    if _WEB.match(url):
        return Picture(f"picture-{number}", url=url, param=param)
    head = _DATA.match(url)
    if head is None:
        msg = (
            "This is no picture in base64 (one begins like `data:image/png;base64,`), and no "
            "address that begins with `https://`."
        )
        raise unfit(msg, param, "invalid_image_url")
    try:
        content = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not content:
        msg = "What stands in this picture's address is not base64."
        raise unfit(msg, param)
    if len(content) > LARGEST:
        msg = f"This picture is too large ({in_words(len(content))}, at most {in_words(LARGEST)})."
        raise unfit(msg, param)
    kind = head[1].lower()
    return Picture(f"picture-{number}{ending_of(kind)}", kind, content)


def fetched(wanted: Picture, content: bytes) -> Picture:
    """Take in what was found; raises `Refused` when that is no picture, whatever it is called."""
    kind = kind_of(content[:BEGINNING])
    if kind is None:
        raise not_fetched(wanted, OTHER_KIND)
    return Picture(f"{wanted.name}{ending_of(kind)}", kind, content)


def not_fetched(wanted: Picture, why: str) -> Refused:
    """Refuse a request with a picture that cannot be had."""
    msg = f"This picture was not fetched: {why}."
    return unfit(msg, wanted.param, "invalid_image_url")
