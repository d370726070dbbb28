"""What schemathesis is told of the API that no schema can say; it reads this by its environment."""

from itertools import count
from typing import Any

import schemathesis
from schemathesis import Case, HookContext
from schemathesis.generation.meta import TestPhase

from gateway.config.loader import read_environment

_PICTURE = "data:image/gif;base64,R0lGODlhAQABAAAAACw="

_numbers = count()
_covering = count()
_EVERY = int(read_environment().get("SCHEMATHESIS_EVERY", "1"))


@schemathesis.hook
def filter_case(_: HookContext, case: Case[Any]) -> bool:
    """Of the thousands of cases of the phase `coverage` send each n-th."""
    covers = case.meta is not None and case.meta.phase.name == TestPhase.COVERAGE
    return not covers or next(_covering) % _EVERY == 0


@schemathesis.hook
def before_call(_: HookContext, case: Case[Any], __: dict[str, Any]) -> None:
    """Where everything fits the schema, let the last message ask something, under a key of its own.

    A schema cannot speak of the last of a list, nor of what was sent or answered before. Pictures
    that lie elsewhere are fetched only where that is set.
    """
    if not (case.meta and case.meta.generation.mode.is_positive):
        return
    if case.query:
        case.query.pop("after", None)
    if not isinstance(case.body, dict):
        return
    case.body = body = _with_own_pictures(case.body)
    body.pop("previous_response_id", None)
    for name in ("response_format", "text", "output_config"):  # the model answers in plain text
        body.pop(name, None)
    if isinstance(body.get("tool_choice"), dict):  # it has to name one of the tools
        del body["tool_choice"]
    for number, tool in enumerate(body.get("tools") or ()):  # names are unique
        for named in (tool, tool.get("function")):
            if isinstance(named, dict) and isinstance(named.get("name"), str):
                named["name"] = f"{named['name'][:100]}{number}"
    for name in ("messages", "input"):
        if isinstance(said := body.get(name), list):
            body[name] = [*said, {"role": "user", "content": "Hello."}]
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = f"key {next(_numbers)}"


def _with_own_pictures(body: Any) -> Any:
    if isinstance(body, dict):
        return {name: _with_own_pictures(value) for name, value in body.items()}
    if isinstance(body, list):
        return [_with_own_pictures(each) for each in body]
    elsewhere = isinstance(body, str) and body[:4].lower() == "http"
    return _PICTURE if elsewhere else body
