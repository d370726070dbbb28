"""Writes the doctor's findings into docs/troubleshooting.md: `python -m scripts.doctor_docs`.

The findings are read from the sources, where each call of `warn` or `fail` contains its fix; values
that are known only at run time become "…".
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/troubleshooting.md"
BEGIN, END = "<!-- findings: written by scripts/doctor_docs.py -->", "<!-- end of findings -->"

SOURCES = {
    "Configuration": "gateway/operate/doctor/configuration.py",
    "Files": "gateway/operate/doctor/permissions.py",
    "Program": "gateway/operate/doctor/installation.py",
    "Certificates": "gateway/operate/doctor/certificates.py",
    "Any platform": "gateway/operate/doctor/chats.py",
    "Telegram": "platforms/telegram/probe.py",
    "Discord": "platforms/discord/probe.py",
    "Slack": "platforms/slack/probe.py",
    "Model": "agent/probe.py",
    "MCP servers": "gateway/operate/doctor/mcp.py",
    "Database": "gateway/operate/doctor/database.py",
    "Disk": "gateway/operate/doctor/disk.py",
    "Clock": "gateway/operate/doctor/clock.py",
    "Gateway": "gateway/operate/doctor/daemon.py",
    "Port": "gateway/operate/doctor/port.py",
    "Service": "gateway/operate/doctor/service.py",
    "Sandbox": "gateway/operate/doctor/sandbox.py",
    "Access": "gateway/operate/doctor/access.py",
    "Spending": "gateway/operate/doctor/spending.py",
    "Any check": "gateway/operate/doctor/run.py",
}
_SIGNS = {"warn": "!", "fail": "✗"}
_OPEN = "…"
_JOINED = re.compile(r"(?<=\w)…|…(?=\w)")  # an option or `sudo` that is not always there


def findings() -> str:
    """Return the generated part of the page."""
    return "\n".join(_section(name, ROOT / source) for name, source in SOURCES.items())


def page(written: str) -> str:
    """Return the page with its generated part replaced."""
    before, _, rest = written.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{findings()}\n{END}{after}"


def _section(name: str, source: Path) -> str:
    rows = "".join(dict.fromkeys(_rows(ast.parse(source.read_text(encoding="utf-8")))))
    return f"\n### {name}\n\n| | what it says | what to do |\n|---|---|---|\n{rows}".rstrip()


def _rows(tree: ast.Module) -> Iterator[str]:
    everywhere = {**_strings(tree.body), **_members(tree)}
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        known = {**everywhere, **_strings([*ast.walk(function)])}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield from _row(node.func.id, node.args, known)


def _row(level: str, arguments: list[ast.expr], known: Mapping[str, ast.expr]) -> Iterator[str]:
    if level not in _SIGNS or len(arguments) != len(("subject", "text", "fix")):
        return
    subject, text, fix = (_written(each, known) for each in arguments)
    if (text + fix).strip(_OPEN + " "):
        about = f"{subject}: " if subject.strip(_OPEN) else ""
        yield f"| {_SIGNS[level]} | {_cell(about + text)} | {_cell(fix)} |\n"


def _strings(statements: list[ast.AST] | list[ast.stmt]) -> dict[str, ast.expr]:
    """Return the names that are assigned exactly one text, with that text."""
    given: dict[str, list[ast.expr]] = {}
    for each in statements:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            given.setdefault(each.targets[0].id, []).append(each.value)
    return {
        name: values[0]
        for name, values in given.items()
        if len(values) == 1 and isinstance(values[0], (ast.Constant, ast.JoinedStr))
    }


def _members(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the members of the module's classes that are texts, such as those of an enum."""
    return {
        f"{owner.name}.{name}": text
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        for name, text in _strings(owner.body).items()
    }


def _written(node: ast.expr, known: Mapping[str, ast.expr]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_written(part, known) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)) | ast.Name(id=name) if name in known:
            return _written(known[name], {each: known[each] for each in known if each != name})
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if f"{owner}.{name}" in known:
            return _written(known[f"{owner}.{name}"], {})
        case _:
            return _OPEN


def _cell(text: str) -> str:
    plain = re.sub(r"`[^`]*`", lambda span: _JOINED.sub("", span[0]), text)
    return plain.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
