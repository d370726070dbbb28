"""Sans-IO: pictures inside of a request, as `data:` addresses, and those that lie elsewhere."""

import base64
import binascii
import re

from agent.request.pictures import SIGNATURE_BYTES, detect_media_type
from gateway.http.api.asked import RequestPicture
from gateway.http.api.failures import RequestRefused, invalid_request
from gateway.media.incoming import MAX_FILES, extension_for
from sessions.values.size import format_size

REMOTE_NOT_ALLOWED = (
    "Pictures are not fetched from other addresses here, unless http.fetch_pictures is set; send "
    "the picture itself, as a data: address (`data:image/png;base64,…`)."
)
NOT_A_PICTURE = "what lies there is no picture that a model can be shown (JPEG, PNG, GIF or WebP)"
MAX_PICTURE_BYTES = 15_000_000  # bytes, as much as is kept of one file
# Capitals count as little as in any address; JSON Schema has no other way to say so.
_DATA_URL_HEAD = (
    r"[Dd][Aa][Tt][Aa]:([Ii][Mm][Aa][Gg][Ee]/[A-Za-z0-9.+-]{1,60})(?:;[^;,]*)*"
    r";[Bb][Aa][Ss][Ee]64,"
)
_DATA_URL = f"^{_DATA_URL_HEAD}(?:[A-Za-z0-9+/]{{4}})*(?:[A-Za-z0-9+/]{{2}}(?:==|[A-Za-z0-9+/]=|[A-Za-z0-9+/]{{2}}))$"
_WEB_URL_HEAD = r"[Hh][Tt][Tt][Pp][Ss]?://"
PICTURE_URL_SCHEMA = {
    "type": "string",
    "description": "The picture itself, as a `data:` address; or, where `http.fetch_pictures` is set, "
    "where it lies.",
    "anyOf": [{"pattern": _DATA_URL}, {"pattern": f"^{_WEB_URL_HEAD}"}],
}
"""The forms of a picture's address, as JSON Schema has patterns."""

_DATA_URL_PATTERN = re.compile(_DATA_URL_HEAD)
_WEB_URL_PATTERN = re.compile(_WEB_URL_HEAD)


def read_picture(url: str, param: str, number: int) -> RequestPicture:
    """Read one; `number` names it among those of the request. Raises `Refused`."""
    if number > MAX_FILES:
        msg = f"There are more than {MAX_FILES} pictures in this request."
        raise invalid_request(msg, param)
    if _WEB_URL_PATTERN.match(url):
        return RequestPicture(name=f"picture-{number}", url=url, param=param)
    head = _DATA_URL_PATTERN.match(url)
    if head is None:
        msg = (
            "This is no picture in base64 (one begins like `data:image/png;base64,`), and no "
            "address that begins with `https://`."
        )
        raise invalid_request(msg, param, "invalid_image_url")
    try:
        content = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not content:
        msg = "What stands in this picture's address is not base64."
        raise invalid_request(msg, param)
    if len(content) > MAX_PICTURE_BYTES:
        msg = f"This picture is too large ({format_size(len(content))}, at most {format_size(MAX_PICTURE_BYTES)})."
        raise invalid_request(msg, param)
    kind = head[1].lower()
    return RequestPicture(
        name=f"picture-{number}{extension_for(kind)}", media_type=kind, content=content
    )


def with_content(wanted: RequestPicture, content: bytes) -> RequestPicture:
    """Take in what was found; raises `Refused` when that is no picture, whatever it is called."""
    kind = detect_media_type(content[:SIGNATURE_BYTES])
    if kind is None:
        raise picture_not_fetched(wanted, NOT_A_PICTURE)
    return RequestPicture(
        name=f"{wanted.name}{extension_for(kind)}", media_type=kind, content=content
    )


def picture_not_fetched(wanted: RequestPicture, why: str) -> RequestRefused:
    """Refuse a request with a picture that cannot be had."""
    msg = f"This picture was not fetched: {why}."
    return invalid_request(msg, wanted.param, "invalid_image_url")
