"""What a day may cost, all people together."""

import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from msgspec import Struct
from msgspec.structs import fields

from agent.settings import TargetSettings
from gateway.config.decode import strip
from gateway.config.toml_lines import KeyPath
from gateway.config.unsupported import is_to_come
from gateway.operate.setup.asking import Asker, Question, Unanswered, dollars
from gateway.operate.setup.draft import Draft
from gateway.settings import Settings

KEY: KeyPath = ("limits", "all", "usd_per_day")
_PRICES = "gateway.spending.prices"


def is_known(path: KeyPath = KEY) -> bool:
    """Whether this version has such a key, and obeys it."""
    kind: object = Settings
    for part in path:
        is_table = isinstance(kind, type) and issubclass(kind, Struct)
        found = {each.encode_name: each.type for each in (fields(kind) if is_table else ())}  # type: ignore[arg-type]  # it is a table
        if part not in found:
            return False
        kind = strip(found[str(part)])
    return not is_to_come(path)


def has_price(settings: TargetSettings) -> bool:
    """Whether somebody knows what a model costs, which a limit in dollars needs."""
    if not settings.name or find_spec(_PRICES) is None:
        return True  # it is looked at when it has a name, or not at all
    return import_module(_PRICES).price_of(settings, settings.name) is not None


def ask_budget(
    asker: Asker,
    draft: Draft,
    model: TargetSettings,
    priced: Callable[[TargetSettings], bool] = has_price,
) -> None:
    """Ask for the limit; what is there already stays when nothing is said."""
    present = draft.get(KEY)
    question = Question(
        "usd",
        "Spend at most how many dollars a day, all people together",
        default="" if present is None else str(present),
        shown="no limit" if present is None else f"{present:g}",
    )
    amount = _amount(asker, question)
    if amount is not None and not priced(model) and not _ask_price(asker, draft, model):
        amount = None
    if amount is None:
        draft.remove(KEY)
    elif amount != present:
        draft.put(KEY, _plain(amount))


def _amount(asker: Asker, question: Question) -> float | None:
    while True:
        answer = asker.ask(question)
        try:
            return None if answer.strip() in {"none", "no"} else dollars(answer)
        except ValueError:
            words = "That is no amount: write a number of dollars, such as 5, or “none”."
            asker.refuse(question, Unanswered(words))


def _ask_price(asker: Asker, draft: Draft, model: TargetSettings) -> bool:
    """Ask what the model costs; whether that is known now."""
    missing = (
        f"Nobody knows what {model.name} costs, which --daily-usd needs: install holdfast[prices], "
        "or set model.price in the configuration."
    )
    question = Question(
        "price",
        f"What {model.name} costs, in dollars for a million tokens read and written (as: 0.25 2)",
        "",
        "unknown: no limit",
        missing=missing,
        insists=True,
    )
    while True:
        answer = asker.ask(question)
        if not answer.strip():
            return False
        try:
            read, written = map(dollars, re.split(r"[\s/;]+", answer.strip()))
        except ValueError:
            read = written = None
        if read is not None and written is not None:
            draft.put(("model", "price", "input"), _plain(read))
            draft.put(("model", "price", "output"), _plain(written))
            return True
        asker.refuse(question, Unanswered("Please write two amounts, such as 0.25 2."))


def _plain(amount: float) -> float:
    """Write whole dollars without a point."""
    return int(amount) if amount == int(amount) else amount
