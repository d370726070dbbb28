"""Sans-IO: model names in chats: lookup of a typed name, and lists of models."""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent.providers.registry import Target
from sessions.values.spelling import similar_words

MAX_LISTED = 30
_MAX_SUGGESTIONS = 3
_MAX_NAME_LENGTH = 200
_SIMILARITY_CUTOFF = 0.6
_WORD_ENDS = re.compile(r"(?<=\w)[-_.: ]")


class ModelFound(msgspec.Struct, frozen=True):
    """Exactly one model matches."""

    name: str


class ModelAmbiguous(msgspec.Struct, frozen=True):
    """Several models match."""

    names: tuple[str, ...]


class ModelUnknown(msgspec.Struct, frozen=True):
    """No model matches; `nearest` holds similar names."""

    nearest: tuple[str, ...] = ()


def find_model(
    text: str, known: Iterable[str], *, allow_unlisted: bool = False
) -> ModelFound | ModelAmbiguous | ModelUnknown:
    """Find a model by its whole name, or by parts that occur in no other name.

    With `allow_unlisted`, a single word that matches no known name is taken as the name of a model.
    """
    names = tuple(dict.fromkeys(known))
    if text in names:
        return ModelFound(text)
    words = text.lower().split()
    same = [name for name in names if [name.lower()] == words]
    matches = same or [name for name in names if words and all(w in name.lower() for w in words)]
    if len(matches) == 1:
        return ModelFound(matches[0])
    if matches:
        return ModelAmbiguous(tuple(matches))
    if allow_unlisted and len(words) == 1 and len(text) <= _MAX_NAME_LENGTH:
        return ModelFound(text.strip())
    return ModelUnknown(_nearest_names(text, names))


def _nearest_names(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return similar names; a vendor prefix (`vendor/model`) may be left out.

    If no whole name is similar, compare with the beginnings of names.
    """
    whole: dict[str, list[str]] = {}
    prefixes: dict[str, list[str]] = {}
    for name in names:
        model = name.lower().rpartition("/")[2]
        for form in (name.lower(), model):
            whole.setdefault(form, []).append(name)
        for end in _WORD_ENDS.finditer(model):
            prefixes.setdefault(model[: end.start()], []).append(name)
    return _close_matches(text, whole) or _close_matches(text, prefixes)


def _close_matches(text: str, names: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    close = similar_words(
        text.lower(), names, most=2 * _MAX_SUGGESTIONS, min_similarity=_SIMILARITY_CUTOFF
    )
    return tuple(dict.fromkeys(name for form in close for name in names[form]))[:_MAX_SUGGESTIONS]


def short_names(targets: Iterable[Target]) -> dict[str, str]:
    """Map labels to short names: the model name, or the label if two targets share the model."""
    by_label = {target.label: target.model for target in targets}
    models = list(by_label.values())
    return {
        label: model if models.count(model) == 1 else label for label, model in by_label.items()
    }


def display_name(target: Target) -> str:
    """Return a target's name for chats: the model name to type, then its provider."""
    return f"`{target.model}` ({target.provider.name})"


def quote_names(names: Sequence[str]) -> str:
    """Join names for a chat; at most `MAX_LISTED` are written out."""
    listed = ", ".join(f"`{name}`" for name in names[:MAX_LISTED])
    left = len(names) - MAX_LISTED
    return f"{listed} and {left} more" if left > 0 else listed


def describe_models(
    targets: Sequence[Target], known: Sequence[str], offered: Sequence[str] | None, *, chosen: bool
) -> str:
    """Return the text of `/model`: the current model, its fallbacks, and other models.

    `known` are the names in the configuration, `offered` those that the service lists, or None if
    the service has no list.
    """
    first, *rest = targets
    how = "chosen in this chat" if chosen else "the default"
    lines = [f"🤖 The model here is {display_name(first)}, {how}."]
    if rest:
        lines.append(f"Fallback: {', '.join(map(display_name, rest))}.")
    listed = sorted(offered or (), key=str.lower)
    named = {target.model for target in targets}
    others = [name for name in dict.fromkeys((*known, *listed)) if name not in named]
    if others:
        lines.append(f"Also available: {quote_names(others)}.")
    if offered is None:
        lines.append("The model service doesn't list its models, but you can try any name.")
    return "\n".join(lines)
