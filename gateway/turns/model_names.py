"""Sans-IO: which model somebody means by what they wrote, and how models are listed in a chat."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent.providers.registry import Target

MAX_LISTED = 30
_MAX_SUGGESTIONS = 3
_MAX_NAME_LENGTH = 200
_SIMILARITY_CUTOFF = 0.6
_WORD_ENDS = re.compile(r"(?<=\w)[-_.: ]")


class ModelFound(msgspec.Struct, frozen=True):
    """This one is meant."""

    name: str


class ModelAmbiguous(msgspec.Struct, frozen=True):
    """Any of these may be meant."""

    names: tuple[str, ...]


class ModelUnknown(msgspec.Struct, frozen=True):
    """Nothing is called so; these are, nearly."""

    nearest: tuple[str, ...] = ()


def find_model(
    text: str, known: Iterable[str], *, allow_unlisted: bool = False
) -> ModelFound | ModelAmbiguous | ModelUnknown:
    """Find the model: by its whole name, or by parts of it that no other name has.

    `others`: there may be models besides the known ones; then a word that is a part of none of
    these is taken for a name.
    """
    names = tuple(dict.fromkeys(known))
    if text in names:
        return ModelFound(text)
    words = text.lower().split()
    same = [name for name in names if [name.lower()] == words]
    found = same or [name for name in names if words and all(w in name.lower() for w in words)]
    if len(found) == 1:
        return ModelFound(found[0])
    if found:
        return ModelAmbiguous(tuple(found))
    if allow_unlisted and len(words) == 1 and len(text) <= _MAX_NAME_LENGTH:
        return ModelFound(text.strip())
    return ModelUnknown(_nearest_names(text, names))


def _nearest_names(text: str, names: Sequence[str]) -> tuple[str, ...]:
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
    return _close_matches(text, whole) or _close_matches(text, begun)


def _close_matches(text: str, written: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    close = difflib.get_close_matches(
        text.lower(), written, n=2 * _MAX_SUGGESTIONS, cutoff=_SIMILARITY_CUTOFF
    )
    return tuple(dict.fromkeys(name for each in close for name in written[each]))[:_MAX_SUGGESTIONS]


def short_names(targets: Iterable[Target]) -> dict[str, str]:
    """Name targets shortly, by their labels: by the model, unless two have one of that name."""
    models = {target.label: target.model for target in targets}
    several = list(models.values())
    return {label: model if several.count(model) == 1 else label for label, model in models.items()}


def display_name(target: Target) -> str:
    """Name a target for people: first what they can write, then who provides it."""
    return f"`{target.model}` ({target.provider.name})"


def quote_names(names: Sequence[str]) -> str:
    """List names, not more than a chat can bear."""
    listed = ", ".join(f"`{name}`" for name in names[:MAX_LISTED])
    left = len(names) - MAX_LISTED
    return f"{listed} and {left} more" if left > 0 else listed


def describe_models(
    targets: Sequence[Target], known: Sequence[str], offered: Sequence[str] | None, *, chosen: bool
) -> str:
    """Say who answers, who takes over, and which others there are.

    `known` are the names in the configuration, `offered` those that the service lists; None when
    it did not say.
    """
    first, *rest = targets
    how = "as chosen in this chat" if chosen else "as configured"
    lines = [f"🤖 {display_name(first)} answers here, {how}."]
    if rest:
        lines.append(f"When it does not answer: {', '.join(map(display_name, rest))}.")
    listed = sorted(offered or (), key=str.lower)
    named = {target.model for target in targets}
    others = [name for name in dict.fromkeys((*known, *listed)) if name not in named]
    if others:
        lines.append(f"Others: {quote_names(others)}.")
    if offered is None:
        lines.append("The service does not say which models it has; any name can be tried.")
    return "\n".join(lines)
