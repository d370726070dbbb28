"""The question about the daily limit for all people together."""

import re
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import fields

from agent.settings import TargetSettings
from gateway.config.decode import unwrap_type
from gateway.config.unsupported import is_unsupported
from gateway.operate.setup.asking import AnswerError, Prompter, SetupQuestion, parse_dollars
from gateway.operate.setup.draft import ConfigDraft
from gateway.settings import KeyPath, Settings
from gateway.spending import prices

DAILY_LIMIT_KEY: KeyPath = ("limits", "all", "usd_per_day")


def is_supported(path: KeyPath = DAILY_LIMIT_KEY) -> bool:
    """Return True if this version has and enforces the setting `path`."""
    kind: object = Settings
    for part in path:
        is_table = isinstance(kind, type) and issubclass(kind, Struct)
        found = {field.encode_name: field.type for field in (fields(kind) if is_table else ())}  # type: ignore[arg-type]  # checked by is_table
        if part not in found:
            return False
        kind = unwrap_type(found[str(part)])
    return not is_unsupported(path)


def has_price(settings: TargetSettings) -> bool:
    """Return True if the model's price is known, which a limit in dollars requires."""
    if not settings.name:
        return True  # there is nothing to check
    return prices.find_price(settings, settings.name) is not None


def ask_budget(
    prompter: Prompter,
    draft: ConfigDraft,
    model: TargetSettings,
    is_priced: Callable[[TargetSettings], bool] = has_price,
) -> None:
    """Ask for the limit; an empty answer keeps the current limit."""
    current = draft.get(DAILY_LIMIT_KEY)
    question = SetupQuestion(
        key="usd",
        prompt="Daily limit in dollars for all people together",
        default="" if current is None else str(current),
        shown_default="no limit" if current is None else f"{current:g}",
    )
    amount = _ask_amount(prompter, question)
    if amount is not None and not is_priced(model) and not _ask_price(prompter, draft, model):
        amount = None
    if amount is None:
        draft.remove(DAILY_LIMIT_KEY)
    elif amount != current:
        draft.put(DAILY_LIMIT_KEY, _without_fraction(amount))


def _ask_amount(prompter: Prompter, question: SetupQuestion) -> float | None:
    while True:
        answer = prompter.ask(question)
        try:
            return None if answer.strip() in {"none", "no"} else parse_dollars(answer)
        except ValueError:
            words = "This is not an amount. Enter a number of dollars, such as 5, or “none”."
            prompter.reject(question, AnswerError(words))


def _ask_price(prompter: Prompter, draft: ConfigDraft, model: TargetSettings) -> bool:
    """Ask for the model's price; return True if given."""
    missing = (
        f"--daily-usd needs the price of {model.name}, which is unknown: install holdfast[prices], "
        "or set model.price in the configuration."
    )
    question = SetupQuestion(
        key="price",
        prompt=f"Price of {model.name} in dollars per million input and output tokens (such as 0.25 2)",
        default="",
        shown_default="unknown: no limit",
        missing_message=missing,
        must_be_given=True,
    )
    while True:
        answer = prompter.ask(question)
        if not answer.strip():
            return False
        try:
            read, written = map(parse_dollars, re.split(r"[\s/;]+", answer.strip()))
        except ValueError:
            read = written = None
        if read is not None and written is not None:
            draft.put(("model", "price", "input"), _without_fraction(read))
            draft.put(("model", "price", "output"), _without_fraction(written))
            return True
        prompter.reject(question, AnswerError("Please enter two amounts, such as 0.25 2."))


def _without_fraction(amount: float) -> float:
    """Return whole dollars as an int, so that TOML shows no decimal point."""
    return int(amount) if amount == int(amount) else amount
