"""Sans-IO: pictures of a request, given as a `data:` URL or by address."""

import base64
import binascii
import re

from agent.request.pictures import SIGNATURE_BYTES, detect_media_type
from gateway.http.api.asked import RequestPicture
from gateway.http.api.failures import RequestRefused, invalid_request
from gateway.media.incoming import MAX_FILES
from sessions.values.file_names import extension_for
from sessions.values.size import format_size

REMOTE_NOT_ALLOWED = (
    "This server does not fetch pictures from other addresses (http.fetch_pictures is off); send "
    "the picture itself as a data: URL (`data:image/png;base64,…`)."
)
_NOT_A_PICTURE = "the file there is not a JPEG, PNG, GIF or WebP picture"
MAX_PICTURE_BYTES = 15_000_000
# URL schemes and media types ignore case; JSON Schema patterns have no flag for that.
_DATA_URL_HEAD = (
    r"[Dd][Aa][Tt][Aa]:([Ii][Mm][Aa][Gg][Ee]/[A-Za-z0-9.+-]{1,60})(?:;[^;,]*)*"
    r";[Bb][Aa][Ss][Ee]64,"
)
_DATA_URL = f"^{_DATA_URL_HEAD}(?:[A-Za-z0-9+/]{{4}})*(?:[A-Za-z0-9+/]{{2}}(?:==|[A-Za-z0-9+/]=|[A-Za-z0-9+/]{{2}}))$"
_WEB_URL_HEAD = r"[Hh][Tt][Tt][Pp][Ss]?://"
PICTURE_URL_SCHEMA = {
    "type": "string",
    "description": "The picture as a `data:` URL, or its `https://` address if "
    "`http.fetch_pictures` is set.",
    "anyOf": [{"pattern": _DATA_URL}, {"pattern": f"^{_WEB_URL_HEAD}"}],
}
"""JSON Schema of a picture's URL."""

_DATA_URL_PATTERN = re.compile(_DATA_URL_HEAD)
_WEB_URL_PATTERN = re.compile(_WEB_URL_HEAD)


def read_picture(url: str, param: str, number: int) -> RequestPicture:
    """Read one picture; raises `RequestRefused`. `number` is its position in the request."""
    if number > MAX_FILES:
        msg = f"A request can have at most {MAX_FILES} pictures."
        raise invalid_request(msg, param)
    if _WEB_URL_PATTERN.match(url):
        return RequestPicture(name=f"picture-{number}", url=url, param=param)
    head = _DATA_URL_PATTERN.match(url)
    if head is None:
        msg = (
            "This is neither a picture in base64 (`data:image/png;base64,…`) nor an address that "
            "begins with `https://`."
        )
        raise invalid_request(msg, param, "invalid_image_url")
    try:
        content = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not content:
        msg = "The content of this data: URL is not valid base64."
        raise invalid_request(msg, param)
    if len(content) > MAX_PICTURE_BYTES:
        msg = f"This picture is too large ({format_size(len(content))}, at most {format_size(MAX_PICTURE_BYTES)})."
        raise invalid_request(msg, param)
    kind = head[1].lower()
    return RequestPicture(
        name=f"picture-{number}{extension_for(kind)}", media_type=kind, content=content
    )


def with_content(wanted: RequestPicture, content: bytes) -> RequestPicture:
    """Return the picture with downloaded content; raises `RequestRefused` if it is no picture.

    The type is detected from the content, because file names and headers are not reliable.
    """
    kind = detect_media_type(content[:SIGNATURE_BYTES])
    if kind is None:
        raise picture_not_fetched(wanted, _NOT_A_PICTURE)
    return RequestPicture(
        name=f"{wanted.name}{extension_for(kind)}", media_type=kind, content=content
    )


def picture_not_fetched(wanted: RequestPicture, why: str) -> RequestRefused:
    """Return the refusal of a request whose picture could not be downloaded."""
    msg = f"This picture could not be fetched: {why}."
    return invalid_request(msg, wanted.param, "invalid_image_url")
