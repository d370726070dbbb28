"""Sans-IO: what a day may cost, all people together."""

from msgspec import Struct
from msgspec.structs import fields

from gateway.config_decode import strip
from gateway.settings import Settings
from gateway.setup.asking import Asker, Question, Unanswered, dollars
from gateway.setup.draft import Draft
from gateway.to_come import is_to_come
from gateway.toml_lines import KeyPath

KEY: KeyPath = ("limits", "all", "usd_per_day")


def is_known(path: KeyPath = KEY) -> bool:
    """Whether this version has such a key, and obeys it."""
    kind: object = Settings
    for part in path:
        inside = {
            field.encode_name: field.type
            for field in (
                fields(kind) if isinstance(kind, type) and issubclass(kind, Struct) else ()
            )
        }
        if part not in inside:
            return False
        kind = strip(inside[str(part)])
    return not is_to_come(path)


def ask_budget(asker: Asker, draft: Draft) -> None:
    """Ask for the limit; what is there already stays when nothing is said."""
    present = draft.get(KEY)
    question = Question(
        "usd",
        "Spend at most how many dollars a day, all people together",
        default="" if present is None else str(present),
        shown="no limit" if present is None else f"{present:g}",
    )
    while True:
        answer = asker.ask(question)
        try:
            amount = None if answer.strip() in {"none", "no"} else dollars(answer)
        except ValueError:
            words = "That is no amount: write a number of dollars, such as 5, or “none”."
            asker.refuse(question, Unanswered(words))
            continue
        if amount is None:
            draft.remove(KEY)
        elif amount != present:
            draft.put(KEY, int(amount) if amount == int(amount) else amount)
        return
