"""Sans-IO: pictures in requests, and recognition of errors about unsupported pictures."""

import re
from collections.abc import Sequence

from agent.model.contract import ModelRequest, Picture
from agent.request.pictures import PICTURE_OMITTED
from sessions.records import Message

_NOT = r"(?:not|n't|no|only|unsupported|invalid|unknown|cannot|unrecognized|without)"
_PICTURE = r"(?:image|vision|multi-?modal|input_image|image_url)"
PICTURES_UNSUPPORTED = re.compile(
    rf"{_NOT}\b.{{0,60}}\bsupport.{{0,60}}{_PICTURE}|{_PICTURE}.{{0,60}}{_NOT}\b.{{0,40}}(?:support|allowed)"
    rf"|(?:unknown|unsupported|invalid).{{0,30}}(?:variant|type|part|content).{{0,30}}{_PICTURE}"
    rf"|{_PICTURE}\W+(?:input|content)?\W*unsupported|not a (?:vision|multi-?modal) model"
    r"|no endpoints found that support image|content\W+(?:must be|should be|expected) a? ?string"
)
"""Matches errors of models that support no pictures at all."""

PICTURE_REFUSED = re.compile(r"\bimages?\b|image_url|input_image|data:image|picture")
"""Matches errors about a particular picture."""

_PICTURE_FEATURES = frozenset({"pictures", "these_pictures"})


def split_pictures(
    row: Message, request: ModelRequest, omitted_features: frozenset[str]
) -> tuple[str, Sequence[Picture]]:
    """Return a row's text and its pictures; omitted pictures are replaced by a note in the text."""
    pictures = [request.pictures[file.path] for file in row.files if file.path in request.pictures]
    if pictures and not _PICTURE_FEATURES.isdisjoint(omitted_features):
        return f"{row.content}\n{PICTURE_OMITTED}".strip(), ()
    return row.content, pictures


def data_url(picture: Picture) -> str:
    """Encode a picture as a `data:` URL."""
    return f"data:{picture.media_type};base64,{picture.data}"
