"""Line numbers of keys, checked against tomllib: exactly the keys that tomllib finds."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.toml_lines import locate_keys
from gateway.settings import KeyPath


def paths_of(node: object, path: KeyPath = ()) -> set[KeyPath]:
    """Return the paths of all keys, tables and elements of a parsed document."""
    found = {path} if path else set()
    if isinstance(node, dict):
        for key, value in node.items():
            found |= paths_of(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            found |= paths_of(value, (*path, index))
    return found


@pytest.mark.parametrize(
    ("document", "lines"),
    [
        ("", {}),
        ("\n# only = words\n", {}),
        ("a = 1\nb = 2", {("a",): 1, ("b",): 2}),
        ("a=1 # b = 2\r\n\r\nc=3\r\n", {("a",): 1, ("c",): 3}),
        ("[t]\n\n  a = 1\n", {("t",): 1, ("t", "a"): 3}),
        ("[a.b]\nx=1\n[a]\ny=2", {("a",): 3, ("a", "b"): 1, ("a", "b", "x"): 2, ("a", "y"): 4}),
        (
            "[ a . 'b.c' ]\n\"d\\u0065\" . f = 1",
            {("a",): 1, ("a", "b.c"): 1, ("a", "b.c", "de"): 2, ("a", "b.c", "de", "f"): 2},
        ),
        ("a.b = 1\na.c = 2", {("a",): 1, ("a", "b"): 1, ("a", "c"): 2}),
        (
            "[[x]]\na=1\n[[x]]\n[x.y]\nb=2",
            {
                ("x",): 1,
                ("x", 0): 1,
                ("x", 0, "a"): 2,
                ("x", 1): 3,
                ("x", 1, "y"): 4,
                ("x", 1, "y", "b"): 5,
            },
        ),
        (
            "[[x]]\n[[x.y]]\n[[x.y]]\nb=1\n[[x]]\n[[x.y]]",
            {
                ("x",): 1,
                ("x", 0): 1,
                ("x", 0, "y"): 2,
                ("x", 0, "y", 0): 2,
                ("x", 0, "y", 1): 3,
                ("x", 0, "y", 1, "b"): 4,
                ("x", 1): 5,
                ("x", 1, "y"): 6,
                ("x", 1, "y", 0): 6,
            },
        ),
        (
            "a = [ # first\n  1, # ],\n  [2,\n  3],\n]\nb = 4",
            {("a",): 1, ("a", 0): 2, ("a", 1): 3, ("a", 1, 0): 3, ("a", 1, 1): 4, ("b",): 6},
        ),
        (
            "a = { b.c = 1, 'd' = [\n{ e = 2 }] }\nf = {}\ng = [\n]",
            {
                ("a",): 1,
                ("a", "b"): 1,
                ("a", "b", "c"): 1,
                ("a", "d"): 1,
                ("a", "d", 0): 2,
                ("a", "d", 0, "e"): 2,
                ("f",): 3,
                ("g",): 4,
            },
        ),
        (
            'a = """\n[b]\nc = 1 \\""" "" """\nd = \'\'\'\n[e]\n\'\' \'\'\'\nf = 1',
            {("a",): 1, ("d",): 4, ("f",): 7},
        ),
        ("a = \"\"\"x\"\"\"\"\"\nb = '''y'''''\nc = ''\nd = \"\"", dict.fromkeys("abcd", 0)),
        (
            'a = "x # \\" ] = y"\nb = \'[c] \\\'\nd = 1979-05-27 07:32:00 # e = 1\nf = -inf',
            {("a",): 1, ("b",): 2, ("d",): 3, ("f",): 4},
        ),
    ],
)
def test_keys_are_located_on_their_lines(document: str, lines: dict[Any, int]) -> None:
    if 0 in lines.values():  # one key per line, in order
        lines = {(key,): number for number, key in enumerate(lines, start=1)}
    assert locate_keys(document) == lines
    assert set(lines) == paths_of(tomllib.loads(document))


def test_invalid_toml_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        locate_keys("a = 1\n= 2")


# --- any document ------------------------------------------------------------------------------

BLANKS = st.sampled_from(["", " ", "\t", "  "])
NOISE = st.sampled_from(["", "\n", "# [x]\n", "  # x = '''\n", "\n\n", ' # "\n'])
SCALARS = st.sampled_from(
    [
        "1",
        "-0.5e3",
        "true",
        "nan",
        "1979-05-27",
        "1979-05-27 07:32:00Z",
        '"a # b"',
        '"\\"] = \\\\"',
        "'\\'",
        "'a, [b] = {c}'",
        '"""\n[x]\ny = 1 \\\n  z"""',
        '"""a ""\\" b"""',
        '"""q"""""',
        "'''\n[[x]]\n'' = 2\n'''",
        "'''q''''",
        '""',
        "''",
    ]
)


class Writer:
    """Generator of random documents; each key occurs once, so a path has one position."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.count = 0

    def key(self) -> str:
        self.count += 1
        name = f"k{self.count}k"
        style = self.draw(st.sampled_from(["{}", "'{}'", '"{}"', "'{} . #'", '"{}\\t\\"]="']))
        return style.format(name)

    def dotted(self) -> str:
        blank = self.draw(BLANKS)
        return f"{blank}.{blank}".join(self.key() for _ in range(self.draw(st.integers(1, 3))))

    def value(self, depth: int = 0) -> str:
        kind = self.draw(st.integers(0, 3)) if depth < 3 else 0
        if kind == 2:
            items = [self.value(depth + 1) for _ in range(self.draw(st.integers(0, 3)))]
            gaps = [self.draw(NOISE) for _ in range(len(items) + 2)]
            inside = "".join(f"{gap}{item}," for gap, item in zip(gaps, items, strict=False))
            if self.draw(st.booleans()) and items:
                inside = inside[:-1]
            return f"[{inside}{gaps[-1]}]"
        if kind == 3:
            pairs = [self.pair(depth + 1) for _ in range(self.draw(st.integers(0, 3)))]
            return "{" + ",".join(pairs) + self.draw(BLANKS) + "}"
        return self.draw(SCALARS)

    def pair(self, depth: int = 0) -> str:
        before, around = self.draw(BLANKS), self.draw(BLANKS)
        return f"{before}{self.dotted()}{around}={around}{self.value(depth)}{before}"

    def document(self) -> str:
        lines = []
        arrays: list[str] = []
        for _ in range(self.draw(st.integers(0, 8))):
            lines.append(self.draw(NOISE))
            kind = self.draw(st.integers(0, 4))
            end = self.draw(st.sampled_from(["\n", "\r\n", " # end = ]\n"]))
            if kind == 0:
                lines.append(f"[{self.draw(BLANKS)}{self.dotted()} ]{end}")
            elif kind == 1:
                fresh = not arrays or self.draw(st.booleans())
                name = self.dotted() if fresh else self.draw(st.sampled_from(arrays))
                if not fresh and self.draw(st.booleans()):
                    name = f"{name}.{self.key()}"
                arrays.append(name)
                lines.append(f"[[{name} ]]{end}")
            elif kind == 2 and arrays:
                lines.append(f"[ {self.draw(st.sampled_from(arrays))}.{self.key()}]{end}")
            else:
                lines.append(f"{self.pair()}{end}")
        return "".join(lines)


@st.composite
def documents(draw: st.DrawFn) -> str:
    return Writer(draw).document()


@given(documents())
def test_located_keys_agree_with_tomllib(document: str) -> None:
    parsed = tomllib.loads(document)
    lines = locate_keys(document)
    assert set(lines) == paths_of(parsed)
    text = document.replace("\r\n", "\n").split("\n")
    for path, line in lines.items():
        name = next(part for part in reversed(path) if isinstance(part, str))
        if isinstance(path[-1], str):
            assert name[: name.index("k", 1) + 1] in text[line - 1], (path, line)


@pytest.mark.process
@given(documents(), st.integers(1, 5))
def test_empty_lines_in_front_shift_every_key(document: str, count: int) -> None:
    moved = locate_keys("\n" * count + document)
    assert moved == {path: line + count for path, line in locate_keys(document).items()}
