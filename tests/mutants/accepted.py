"""Survivors that need no test, each with a reason, read from `accepted.toml`."""

import tomllib
from pathlib import Path

from tests.mutants.operators import Mutant

_FIELDS = ("module", "function", "kind", "before", "after")
FILE = Path(__file__).with_name("accepted.toml")

Key = tuple[str, ...]


def read_accepted(file: Path = FILE) -> dict[Key, str]:
    """Return the reason for each accepted survivor, by the key of the mutant."""
    entries = tomllib.loads(file.read_text()).get("accepted", [])
    return {tuple(entry[name] for name in _FIELDS): entry["reason"] for entry in entries}


def as_entry(mutant: Mutant) -> str:
    """Return an entry for a survivor, in the form of the file."""
    lines = [f"{name} = {_quoted(value)}" for name, value in zip(_FIELDS, mutant.key, strict=True)]
    return "\n".join(["[[accepted]]", *lines, 'reason = ""'])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f"'{text}'" if "'" not in text else f'"{escaped}"'
