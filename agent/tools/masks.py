"""Sans-IO: secrets that are put back when the model writes a file that it has read masked.

The model sees a placeholder instead of each secret. Text that it writes to the same file gets the
secrets back. A placeholder that does not belong to the file is refused, so that no secret is
replaced by its placeholder and no secret moves to another file.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from agent.errors import ToolError
from sessions.values.masks import MASK, PLACEHOLDER, PLACEHOLDER_HEAD, MaskedText, MaskSecrets

_MARGIN = 20_000  # characters around a part of a file; longer than a private key

_ANY_PLACEHOLDER = re.compile(rf"{PLACEHOLDER.pattern}|{re.escape(PLACEHOLDER_HEAD)}")
_BARE_MASK = re.compile(r"(?<!\*)\*\*\*(?!\*|secret-)")


def mask_lines(lines: Sequence[str], start: int, stop: int, mask: MaskSecrets) -> list[str]:
    """Return the masked lines from `start` to `stop`; a long line is cut off after the margin.

    The lines around them are masked too, because a line of a private key alone is not recognized.
    The rest of a large file is not.
    """
    first = start - _count_within(lines[index] for index in range(start - 1, -1, -1))
    last = stop + _count_within(lines[index] for index in range(stop, len(lines)))
    region = "\n".join(line[: 2 * _MARGIN] for line in lines[first:last])
    return mask(region).text.split("\n")[start - first : stop - first]


def _count_within(lines: Iterable[str]) -> int:
    """Return the number of lines that fit into the margin."""
    count = size = 0
    for line in lines:
        size += len(line) + 1
        if size > _MARGIN:
            break
        count += 1
    return count


def restore_secrets(path: str, content: str, present: MaskedText) -> str:
    """Return the content for a file with the secrets of the present file.

    A line that differs from a line of the present file only by `***` instead of a placeholder gets
    the secrets of that line. Raises `ToolError` if a secret would be lost or could be another one.
    """
    if MASK not in content:
        return content
    content = _complete_bare_masks(content, present)
    used = set(_ANY_PLACEHOLDER.findall(content))
    if foreign := sorted(used - present.secrets.keys() - present.literals):
        msg = (
            f"Nothing was written: {foreign[0]} stands for a password or key that is hidden from "
            f"you, and {path} does not contain it now. Read {path} again and keep its placeholders "
            "where they are, or leave this line to the person."
        )
        raise ToolError(msg)
    if ambiguous := sorted(used & present.secrets.keys() & present.literals):
        msg = (
            f"Nothing was written: {path} contains {ambiguous[0]} as text as well as the password "
            "or key that it stands for. Ask the person to change this file."
        )
        raise ToolError(msg)
    missing = sorted(_secrets_shown(present.text, present) - used)
    if missing and _count_bare(content) > _count_bare(present.text):
        msg = (
            f"Nothing was written: the text has {MASK} where {path} may have a hidden password or "
            f"key. Write {missing[0]} in its place, or change the other lines with edit_file."
        )
        raise ToolError(msg)
    return _reveal(content, present)


def replace_masked(path: str, present: MaskedText, old: str, new: str, count: int) -> str:
    """Replace text in the masked form of a file and return the file with its secrets.

    `count` is the number of occurrences of `old`. Raises `ToolError` like `restore_secrets`, and
    if `old` is a part of a placeholder.
    """
    changed = present.text.replace(old, new)
    expected = _count_placeholders(present.text)
    removed, added = _count_placeholders(old), _count_placeholders(new)
    for name in {*expected, *added}:
        expected[name] += count * (added[name] - removed[name])
    if _count_placeholders(changed) != +expected:
        msg = (
            f"Nothing was changed: `old` and `new` must contain the placeholders of hidden "
            f"passwords and keys whole, such as {_an_example(present)}."
        )
        raise ToolError(msg)
    return restore_secrets(path, changed, present)


def has_placeholder(text: str) -> bool:
    """True if a text contains the placeholder of a secret."""
    return PLACEHOLDER_HEAD in text


def _complete_bare_masks(content: str, present: MaskedText) -> str:
    if not _BARE_MASK.search(content):
        return content
    lines = present.text.split("\n")
    by_short: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if has_placeholder(line):
            by_short[PLACEHOLDER.sub(MASK, line)].add(line)
    by_short = {short: found for short, found in by_short.items() if short not in set(lines)}
    return "\n".join(
        found.copy().pop() if len(found := by_short.get(line, set())) == 1 else line
        for line in content.split("\n")
    )


def _reveal(text: str, present: MaskedText) -> str:
    """Replace placeholders; a secret may itself contain the placeholder of a shorter one."""
    return PLACEHOLDER.sub(
        lambda found: (
            _reveal(present.secrets[found[0]], present) if found[0] in present.secrets else found[0]
        ),
        text,
    )


def _secrets_shown(text: str, present: MaskedText) -> set[str]:
    return set(PLACEHOLDER.findall(text)) & present.secrets.keys()


def _count_placeholders(text: str) -> Counter[str]:
    return Counter(_ANY_PLACEHOLDER.findall(text))


def _count_bare(text: str) -> int:
    return len(_BARE_MASK.findall(text))


def _an_example(present: MaskedText) -> str:
    return min(present.secrets, default=f"{PLACEHOLDER_HEAD}…")
