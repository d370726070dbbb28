"""Check of a final answer against the format that the client asked for."""

import re
from typing import Any

import msgspec

from agent.model.contract import AnswerFormat

_FENCED = re.compile(r"```[a-zA-Z0-9]*\s*\n(?P<json>.*?)\n?\s*```", re.DOTALL)


def describe_format(wanted: AnswerFormat) -> str:
    """Return the instruction for the model."""
    if wanted.schema is None:
        return "[Your final answer must be one JSON object, without any text around it.]"
    schema = msgspec.json.encode(wanted.schema).decode()
    about = f" It is: {wanted.description}" if wanted.description else ""
    return (
        "[Your final answer must be one JSON document that fits the following JSON schema, without "
        f"any text around it.{about}\n{schema}]"
    )


def repair_prompt(complaint: str) -> str:
    """Return the message that asks the model to correct its answer."""
    return (
        f"[Your answer above does not have the required format: {complaint} Give the whole answer "
        "again, as one JSON document without any text around it.]"
    )


def check_answer(text: str, wanted: AnswerFormat) -> tuple[str, str]:
    """Return the JSON document in an answer and an empty complaint, or the text and a complaint.

    Call this in a thread, because a schema can take long.
    """
    document = text.strip()
    if fenced := _FENCED.fullmatch(document):
        document = fenced["json"].strip()
    try:
        answer: object = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError) as error:
        return text, f"it is not JSON ({error})."
    if wanted.schema is None:
        return (document, "") if isinstance(answer, dict) else (text, "it is not a JSON object.")
    from agent.tools.mcp.arguments import make_checker  # noqa: PLC0415 - loads jsonschema

    check: Any = make_checker(wanted.name, wanted.schema)
    complaint = check(answer)
    return (text, f"{complaint}.") if complaint else (document, "")
