"""Sans-IO: results of tools with files, and reports about the progress of a call."""

from collections.abc import Callable

import msgspec

from sessions.records import Attachment

ReportProgress = Callable[[str], None]
"""Shows a short text about the progress of the call, and renews its time limit."""


class ToolOutput(msgspec.Struct, frozen=True):
    """A result with files of the workspace; a model that can see is shown the pictures."""

    text: str
    files: tuple[Attachment, ...] = ()


class EncodedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the result of another program, before it is saved."""

    name: str  # as the program names the file; may be empty or hostile
    media_type: str  # as the program says
    data: str  # base64
