"""Sans-IO: pictures, files and audio of a request, given in base64; pictures also by address."""

import base64
import binascii
import mimetypes
import re

from msgspec.structs import replace

from agent.request.pictures import SIGNATURE_BYTES, detect_media_type
from gateway.http.api.asked import RequestPicture, replace_nul
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

_BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/]=|[A-Za-z0-9+/]{2}))"
_FILE_HEAD = (
    r"[Dd][Aa][Tt][Aa]:([A-Za-z0-9.+_-]{1,60}/[A-Za-z0-9.+_-]{1,80})(?:;[^;,]*)*"
    r";[Bb][Aa][Ss][Ee]64,"
)
FILE_DATA_SCHEMA = {
    "type": "string",
    "description": "The file in base64, or as a `data:` URL.",
    "pattern": f"^(?:{_FILE_HEAD})?{_BASE64}$",
}
"""JSON Schema of the content of a file."""
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}  # by the format of `input_audio`

_FILE_HEAD_PATTERN = re.compile(_FILE_HEAD)
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


def read_file(
    data: str, param: str, number: int, *, name: str = "", media_type: str = ""
) -> RequestPicture:
    """Read one file; raises `RequestRefused`. `number` is its position in the request."""
    if number > MAX_FILES:
        msg = f"A request can have at most {MAX_FILES} files."
        raise invalid_request(msg, param)
    head = _FILE_HEAD_PATTERN.match(data)
    try:
        content = base64.b64decode(data[head.end() :] if head else data, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not content:
        msg = "The content of this file is not valid base64."
        raise invalid_request(msg, param)
    if len(content) > MAX_PICTURE_BYTES:
        msg = f"This file is too large ({format_size(len(content))}, at most {format_size(MAX_PICTURE_BYTES)})."
        raise invalid_request(msg, param)
    kind = head[1].lower() if head else media_type
    if not kind:
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return RequestPicture(
        name=replace_nul(name) or f"file-{number}{extension_for(kind)}",
        media_type=kind,
        content=content,
    )


def read_audio(data: str, format_: str, param: str, number: int) -> RequestPicture:
    """Read speech, which is transcribed like a voice message; raises `RequestRefused`."""
    file = read_file(data, param, number, media_type=_AUDIO_TYPES[format_])
    return replace(file, voice=True)


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
