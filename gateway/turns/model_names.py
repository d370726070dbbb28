"""Sans-IO: which model somebody means by what they wrote, and how models are listed in a chat."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent.providers.registry import Target

MOST_LISTED = 30
_MOST_NEAR = 3
_LONGEST = 200
_CLOSE = 0.6
_WORD_ENDS = re.compile(r"(?<=\w)[-_.: ]")


class Named(msgspec.Struct, frozen=True):
    """This one is meant."""

    name: str


class Several(msgspec.Struct, frozen=True):
    """Any of these may be meant."""

    names: tuple[str, ...]


class Unknown(msgspec.Struct, frozen=True):
    """Nothing is called so; these are, nearly."""

    nearest: tuple[str, ...] = ()


def meant(text: str, known: Iterable[str], *, others: bool = False) -> Named | Several | Unknown:
    """Find the model: by its whole name, or by parts of it that no other name has.

    `others`: there may be models besides the known ones; then a word that is a part of none of
    these is taken for a name.
    """
    names = tuple(dict.fromkeys(known))
    if text in names:
        return Named(text)
    words = text.lower().split()
    same = [name for name in names if [name.lower()] == words]
    found = same or [name for name in names if words and all(w in name.lower() for w in words)]
    if len(found) == 1:
        return Named(found[0])
    if found:
        return Several(tuple(found))
    if others and len(words) == 1 and len(text) <= _LONGEST:
        return Named(text.strip())
    return Unknown(_nearest(text, names))


def _nearest(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Compare also with what stands behind a vendor's name (`vendor/model`).

    Where nothing is like it, it may be the beginning of a long name, mistyped.
    """
    whole: dict[str, list[str]] = {}
    begun: dict[str, list[str]] = {}
    for name in names:
        model = name.lower().rpartition("/")[2]
        for form in (name.lower(), model):
            whole.setdefault(form, []).append(name)
        for end in _WORD_ENDS.finditer(model):
            begun.setdefault(model[: end.start()], []).append(name)
    return _close(text, whole) or _close(text, begun)


def _close(text: str, written: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    close = difflib.get_close_matches(text.lower(), written, n=2 * _MOST_NEAR, cutoff=_CLOSE)
    return tuple(dict.fromkeys(name for each in close for name in written[each]))[:_MOST_NEAR]


def brief(targets: Iterable[Target]) -> dict[str, str]:
    """Name targets shortly, by their labels: by the model, unless two have one of that name."""
    models = {target.label: target.model for target in targets}
    several = list(models.values())
    return {label: model if several.count(model) == 1 else label for label, model in models.items()}


def shown(target: Target) -> str:
    """Name a target for people: first what they can write, then who provides it."""
    return f"`{target.model}` ({target.provider.name})"


def quoted(names: Sequence[str]) -> str:
    """List names, not more than a chat can bear."""
    listed = ", ".join(f"`{name}`" for name in names[:MOST_LISTED])
    left = len(names) - MOST_LISTED
    return f"{listed} and {left} more" if left > 0 else listed


def overview(
    targets: Sequence[Target], known: Sequence[str], offered: Sequence[str] | None, *, chosen: bool
) -> str:
    """Say who answers, who takes over, and which others there are.

    `known` are the names in the configuration, `offered` those that the service lists; None when
    it did not say.
    """
    first, *rest = targets
    how = "as chosen in this chat" if chosen else "as configured"
    lines = [f"🤖 {shown(first)} answers here, {how}."]
    if rest:
        lines.append(f"When it does not answer: {', '.join(map(shown, rest))}.")
    listed = sorted(offered or (), key=str.lower)
    named = {target.model for target in targets}
    others = [name for name in dict.fromkeys((*known, *listed)) if name not in named]
    if others:
        lines.append(f"Others: {quoted(others)}.")
    if offered is None:
        lines.append("The service does not say which models it has; any name can be tried.")
    return "\n".join(lines)
