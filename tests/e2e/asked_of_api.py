"""What schemathesis is told of the API that no schema can say; it reads this by its environment."""

from itertools import count
from typing import Any

import schemathesis
from schemathesis import Case, HookContext

_numbers = count()


@schemathesis.hook
def before_call(_: HookContext, case: Case[Any], __: dict[str, Any]) -> None:
    """Where everything fits the schema, let the last message ask something, under a key of its own.

    A schema cannot speak of the last of a list, nor of what was sent or answered before.
    """
    if not (case.meta and case.meta.generation.mode.is_positive):
        return
    if case.query:
        case.query.pop("after", None)
    if not isinstance(case.body, dict):
        return
    case.body = {**case.body}
    case.body.pop("previous_response_id", None)
    for name in ("messages", "input"):
        if isinstance(said := case.body.get(name), list):
            case.body = {**case.body, name: [*said, {"role": "user", "content": "Hello."}]}
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = f"key {next(_numbers)}"
