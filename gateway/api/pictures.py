"""Sans-IO: pictures inside of a request, as `data:` addresses."""

import base64
import binascii
import re

from gateway.api.asked import Picture
from gateway.api.failures import unfit
from gateway.received import MOST, ending_of
from sessions.values.size import in_words

REMOTE = (
    "Pictures are not fetched from other addresses yet; send the picture itself, as a "
    "data: address (`data:image/png;base64,…`)."
)
LARGEST = 15_000_000  # bytes, as much as is kept of one file
# Capitals count as little as in any address; JSON Schema has no other way to say so.
_BEGINNING = (
    r"[Dd][Aa][Tt][Aa]:([Ii][Mm][Aa][Gg][Ee]/[A-Za-z0-9.+-]{1,60})(?:;[^;,]*)*"
    r";[Bb][Aa][Ss][Ee]64,"
)
ADDRESS = f"^{_BEGINNING}(?:[A-Za-z0-9+/]{{4}})*(?:[A-Za-z0-9+/]{{2}}(?:==|[A-Za-z0-9+/]=|[A-Za-z0-9+/]{{2}}))$"
"""The form of a picture's address, as JSON Schema has patterns."""

_DATA = re.compile(_BEGINNING)


def picture(url: str, param: str, number: int) -> Picture:
    """Read one; `number` names it among those of the request. Raises `Refused`."""
    if number > MOST:
        msg = f"There are more than {MOST} pictures in this request."
        raise unfit(msg, param)
    if not url[:5].lower() == "data:":
        raise unfit(REMOTE, param)
    head = _DATA.match(url)
    if head is None:
        msg = "This is no picture in base64; one begins like `data:image/png;base64,`."
        raise unfit(msg, param)
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
