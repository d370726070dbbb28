"""Everything that is stored has a row in docs/architecture.md that tells what bounds it."""

import ast
import re
from pathlib import Path

from scripts.code_figures import Module
from sessions.store.schema import metadata

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## What bounds the store\n(.*?)^## ", re.MULTILINE | re.DOTALL)


def named_in(heading: str) -> set[str]:
    """Return the names in the first column of a table of the section."""
    (section,) = SECTION.findall((ROOT / "docs" / "architecture.md").read_text())
    table = section[section.index(f"| {heading} |") :].partition("\n\n")[0]
    first = (row.split("|")[1] for row in table.splitlines()[2:])
    return {
        name.removesuffix("…").strip() for cell in first for name in re.findall(r"`(.*?)`", cell)
    }


def constants(module: ast.Module) -> dict[str, str]:
    """Return the texts that a module gives to names."""
    found: dict[str, str] = {}
    for node in module.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        for name, text in zip(names, values, strict=False):
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[ast.unparse(name)] = text.value
    return found


def key_of(given: ast.expr, known: dict[str, str]) -> str:
    """Return a key, or the text in front of the part that varies."""
    match given:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text
        case ast.BinOp(left=left):
            return key_of(left, known)
        case _:
            return known[ast.unparse(given)]


def test_every_table_is_bounded() -> None:
    assert named_in("table") == set(metadata.tables)


def test_every_shelf_is_bounded(modules: list[Module]) -> None:
    shelves = {
        text
        for module in modules
        if not module.path.startswith("platforms/")
        for name, text in constants(module.tree).items()
        if name.endswith("SHELF") or name == "DELETED_ANSWERS"
    }
    assert named_in("shelf") == shelves


def test_every_key_of_an_adapter_is_bounded(modules: list[Module]) -> None:
    keys = set()
    for module in modules:
        if not module.path.startswith("platforms/"):
            continue
        known = constants(module.tree)
        for call in module.calls:
            if ast.unparse(call.func).endswith("shelf.put"):
                keys.add(key_of(call.args[0], known).strip())
    assert keys == named_in("key of an adapter")
