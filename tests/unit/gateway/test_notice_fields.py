"""Every place that sends a notice gives the fields of its text, no fewer and no others."""

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.notices.catalogue import check_fields
from sessions.values.notices import NoticeId

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("agent", "gateway", "platforms", "sessions")
NAMING_CALLS = {"GiveUp", "BudgetExceeded", "next", "_request_item", "notice_id"}
"""Functions that take a notice without its fields; their tests check the fields."""

Use = tuple[str, set[str]]  # member of `NoticeId`, and the given fields
Function = ast.FunctionDef | ast.AsyncFunctionDef


class FieldReader:
    """Reads which fields are given for which notice, without running the code."""

    def __init__(self, trees: list[ast.Module]) -> None:
        self.functions = [
            node for tree in trees for node in ast.walk(tree) if isinstance(node, Function)
        ]
        self.by_name = {function.name: function for function in self.functions}

    def uses(self) -> Iterator[Use]:
        """Yield each notice that is passed to a call or matched, with its fields."""
        for function in self.functions:
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and called_name(node) not in NAMING_CALLS:
                    yield from self.uses_in_call(node, function)
                elif isinstance(node, ast.match_case) and isinstance(node.body[0], ast.Assign):
                    for name in notices_in(node.pattern):
                        yield name, self.keys(node.body[0].value, function)

    def uses_in_call(self, call: ast.Call, function: Function) -> Iterator[Use]:
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        starts = [at for at, value in enumerate(values) if notices_in(value)]
        for start, end in pairwise([*starts, len(values)]):
            fields = set[str]().union(
                *(self.keys(value, function) for value in values[start + 1 : end])
            )
            for name in notices_in(values[start]):
                yield name, fields

    def keys(self, value: ast.expr, function: Function) -> set[str]:
        """Return the keys of a dict that is written here, assigned in the function, or returned."""
        found: set[str] = set()
        match value:
            case ast.Dict():
                for key, part in zip(value.keys, value.values, strict=True):
                    if isinstance(key, ast.Constant):
                        found.add(str(key.value))
                    elif key is None:
                        found |= self.keys(part, function)
            case ast.Name():
                for node in ast.walk(function):
                    match node:
                        case ast.Assign(targets=[ast.Name(id=value.id)], value=assigned):
                            found |= self.keys(assigned, function)
                        case ast.AnnAssign(target=ast.Name(id=value.id), value=ast.Dict() as given):
                            found |= self.keys(given, function)
                        case ast.Assign(
                            targets=[ast.Subscript(ast.Name(id=value.id), ast.Constant(name))]
                        ):
                            found.add(str(name))
                        case _:
                            pass
            case ast.Call() if maker := self.by_name.get(called_name(value)):
                for node in ast.walk(maker):
                    if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
                        found |= self.keys(node.value, maker)
        return found


def called_name(call: ast.Call) -> str:
    """Return the last part of the name of a called function."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def notices_in(node: ast.expr | ast.pattern) -> list[str]:
    """Return the members of `NoticeId` that an argument or a pattern chooses from."""
    match node:
        case ast.Attribute(value=ast.Name(id="NoticeId"), attr=name):
            return [name]
        case ast.IfExp(body=body, orelse=other):
            return [*notices_in(body), *notices_in(other)]
        case ast.MatchValue(value=value):
            return notices_in(value)
        case ast.MatchOr(patterns=patterns):
            return [name for pattern in patterns for name in notices_in(pattern)]
        case _:
            return []


def uses_in(*sources: str) -> list[Use]:
    return list(FieldReader([ast.parse(source) for source in sources]).uses())


def test_every_notice_is_sent_with_its_fields() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    sources = [path.read_text(encoding="utf-8") for path in paths]
    uses = uses_in(*(source for source in sources if "Notice" in source))
    for name, fields in uses:
        check_fields(NoticeId[name], fields)
    chosen_by_state = {"EXPIRED_IDLE", "EXPIRED_DAILY"}
    shown_by_approvals = {
        name for name in NoticeId.__members__ if name.startswith(("ASK", "QUESTION"))
    }
    assert set(NoticeId.__members__) - shown_by_approvals - chosen_by_state <= dict(uses).keys()


@pytest.mark.parametrize(
    ("source", "use"),
    [
        ('say(NoticeId.A, {"n": 1})', ("A", {"n"})),
        (
            'say(place, notice=NoticeId.A, address=place, fields={"n": 1, "m": 2})',
            ("A", {"n", "m"}),
        ),
        ("say(NoticeId.A, place)", ("A", set())),
        ('fields = {"n": 1}\n    fields["m"] = 2\n    say(NoticeId.A, fields)', ("A", {"n", "m"})),
        ('part = {"n": 1}\n    say(NoticeId.A, {**part, "m": 2})', ("A", {"n", "m"})),
        ('say(NoticeId.A, {"m": 2, **self.part(x)})', ("A", {"n", "m"})),
        ('match it:\n        case NoticeId.A:\n            fields = {"n": 1}', ("A", {"n"})),
    ],
)
def test_fields_are_read_from_the_code(source: str, use: tuple[str, set[str]]) -> None:
    maker = 'def part(x):\n    return {"n": x}'
    assert uses_in(maker, f"def f(self):\n    {source}") == [use]


def test_each_notice_has_the_fields_that_follow_it() -> None:
    source = 'def f():\n    say(NoticeId.A if x else NoticeId.B, {"n": 1}, NoticeId.C, {"m": 1})'
    assert uses_in(source) == [("A", {"n"}), ("B", {"n"}), ("C", {"m"})]
