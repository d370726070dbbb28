"""Sans-IO: commands that people write as `!WORD`, where a platform has no commands of its own."""

import re
from collections.abc import Collection

_COMMAND = re.compile(r"!([A-Za-z]+)(?:\s|\Z)")


def is_written_command(text: str, words: Collection[str]) -> bool:
    """Return True if a text is a known command, which is for the bot also without a mention."""
    found = _COMMAND.match(text)
    return found is not None and found[1].lower() in words
