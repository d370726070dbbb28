"""Requests of servers for input (elicitation), as questions to a person.

A form is asked field by field. A form that cannot be asked is declined, and so is every request
where no person can answer.
"""

from collections.abc import Mapping
from typing import Any

from mcp_types import (
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
)

from agent.tools.mcp.arguments import make_checker
from agent.tools.questions import MAX_OPTIONS, AskPerson, PersonQuestion
from sessions.values.frames import remove_invisible
from sessions.values.text import shorten

_MAX_FIELDS = 16
_MAX_TRIES = 3  # for an answer that does not fit
_MAX_TEXT = 1_000  # characters of a message or description
_YES, _NO, _SKIP = "Yes", "No", "Skip"
_KINDS = ("string", "number", "integer", "boolean", "array")
_DECLINED = ElicitResult(action="decline")
_CANCELLED = ElicitResult(action="cancel")

FormValue = str | int | float | bool | list[str] | None


async def answer_elicitation(
    server: str, params: ElicitRequestParams, ask: AskPerson | None
) -> ElicitResult:
    """Ask a person for what a server wants to know, and return the answer."""
    if ask is None:
        return _DECLINED
    if isinstance(params, ElicitRequestURLParams):
        text = f"{_shown(params.message)}\n\nOpen this address:\n{_shown(params.url)}"
        return await _confirm(server, text, ask)
    properties = params.requested_schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return await _confirm(server, _shown(params.message), ask)
    if len(properties) > _MAX_FIELDS or not all(map(_is_askable, properties.values())):
        return _DECLINED
    return await _ask_fields(server, params, properties, ask)


async def _confirm(server: str, text: str, ask: AskPerson) -> ElicitResult:
    answer = await ask(PersonQuestion(asker=server, text=text))
    if answer is None:
        return _CANCELLED
    return ElicitResult(action="accept", content=None) if answer.accepted else _DECLINED


async def _ask_fields(
    server: str, params: ElicitRequestFormParams, properties: Mapping[str, Any], ask: AskPerson
) -> ElicitResult:
    required = params.requested_schema.get("required")
    content: dict[str, FormValue] = {}
    for name, schema in properties.items():
        optional = not (isinstance(required, list) and name in required)
        field = _Field(name, schema, optional=optional)
        problem = ""
        for _ in range(_MAX_TRIES):
            answer = await ask(field.question(server, params.message, problem))
            if answer is None:
                return _CANCELLED
            if not answer.accepted:
                return _DECLINED
            if field.is_skipped(answer.text):
                if field.default is not None:
                    content[name] = field.default
                break
            value, problem = field.read(answer.text)
            if not problem:
                content[name] = value
                break
        else:
            return _CANCELLED
    return ElicitResult(action="accept", content=content)


def _is_askable(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("type") in _KINDS


class _Field:
    """One field of a form."""

    def __init__(self, name: str, schema: Mapping[str, Any], *, optional: bool) -> None:
        self._name = name
        self._schema = schema
        self._optional = optional or self.default is not None
        self._kind = schema["type"]
        self._values = _option_values(schema)  # by their labels
        self._check = make_checker(name, {"type": "object", "properties": {name: dict(schema)}})

    def question(self, server: str, message: str, problem: str) -> PersonQuestion:
        """Return the question for the field; `problem` is what was wrong with the last answer."""
        title = _shown(str(self._schema.get("title") or self._name))
        about = _shown(str(self._schema.get("description") or ""))
        default = self.default
        suggested = ", ".join(default) if isinstance(default, list) else str(default)
        lines = [
            f"({problem})" if problem else "",
            _shown(message),
            "",
            f"{title}: {about}" if about else f"{title}?",
            f"Suggested: {_shown(suggested)}" if default is not None else "",
        ]
        chooses = bool(self._values) and self._kind != "array"
        options = (*self._values, *((_SKIP,) if self._optional else ())) if chooses else ()
        if not chooses:
            several = f"One or more of: {', '.join(self._values)}" if self._values else ""
            skipped = "leaves it empty" if default is None else "takes what is suggested"
            lines += [several, f"“{_SKIP}” {skipped}." if self._optional else ""]
        text = "\n".join(line for at, line in enumerate(lines) if line or at == 2)  # noqa: PLR2004 - the blank line
        return PersonQuestion(
            asker=server, text=text.strip(), options=options, free_text=not chooses
        )

    @property
    def default(self) -> FormValue:
        """The value of a field that is left empty; None if there is none."""
        value = self._schema.get("default")
        if isinstance(value, list):
            return [str(each) for each in value]
        return value if isinstance(value, str | int | float | bool) else None

    def is_skipped(self, text: str) -> bool:
        """True if an answer leaves the field empty."""
        return self._optional and text.strip().casefold() == _SKIP.casefold()

    def read(self, text: str) -> tuple[FormValue, str]:
        """Return the value of an answer, and what is wrong with it."""
        text = text.strip()
        value: FormValue
        if self._kind == "array":
            value = [str(self._values.get(part.strip(), part.strip())) for part in text.split(",")]
        elif self._values:
            labels = {label.casefold(): found for label, found in self._values.items()}
            if text.casefold() not in labels:
                return None, f"“{_shown(text)}” is not one of the possible answers"
            value = labels[text.casefold()]
        elif self._kind == "string":
            value = text
        else:
            try:
                value = int(text) if self._kind == "integer" else float(text.replace(",", "."))
            except ValueError:
                return None, f"“{_shown(text)}” is not a number"
        return value, self._check({self._name: value}) or ""


def _option_values(schema: Mapping[str, Any]) -> dict[str, FormValue]:
    """Return the possible values of a field by their labels; empty if any value fits."""
    if schema["type"] == "boolean":
        return {_YES: True, _NO: False}
    items = schema.get("items") if schema["type"] == "array" else schema
    if not isinstance(items, dict):
        return {}
    titled = items.get("oneOf") or items.get("anyOf")
    if isinstance(titled, list):
        found = {
            _shown(str(each.get("title") or each.get("const"))): str(each.get("const"))
            for each in titled
            if isinstance(each, dict)
        }
    else:
        values = items.get("enum")
        names = items.get("enumNames")
        listed = values if isinstance(values, list) else []
        labels = names if isinstance(names, list) and len(names) == len(listed) else listed
        found = {
            _shown(str(label)): str(value) for label, value in zip(labels, listed, strict=True)
        }
    return {**found} if len(found) <= MAX_OPTIONS else {}


def _shown(text: str) -> str:
    return shorten(remove_invisible(text).strip(), _MAX_TEXT)
