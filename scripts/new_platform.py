"""Generator of a chat platform: `make new-platform NAME=pigeon`.

Writes an adapter, a fake server and a contract service from `scripts/platform_template`, and adds the
platform to the contract tests, `pyproject.toml` and `docs/configuration.md`.
"""

import argparse
import ast
import builtins
import keyword
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template

ROOT = Path(__file__).parents[1]
TEMPLATES = Path(__file__).parent / "platform_template"
MAX_NAME = 16
"""Letters of a name; the lines of the templates stay within the line length."""

KIT = "tests/contract/adapter_kit.py"
PROJECT = "pyproject.toml"
DOCUMENTATION = "docs/configuration.md"

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_RESERVED = {"api", "core", "memory", "local", "contract"}
_FIRST_PARTY = ("platforms", "sessions", "tests")

NEXT_STEPS = """
The generated protocol is an example. Next:
  1. Run the contract tests: make test ARGS="tests/contract/test_adapters.py -k {name}"
  2. Change tests/fakes/{name}/server.py to speak the real protocol, then the adapter in
     platforms/{name}/ until the contract tests pass again.
  3. Correct {documentation} after a change of config.py:
     .venv/bin/python -m scripts.configuration_docs
  4. Add a line to CHANGELOG.md and run make check."""


class Refused(Exception):
    """A platform cannot be generated under this name; nothing was written."""


def check_name(name: str, root: Path) -> None:
    """Raise `Refused` unless a platform of this name can be added to the tree."""
    if not name:
        msg = "Use: make new-platform NAME=pigeon"
    elif not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        msg = (
            f"{name!r} is not a name of lower-case letters, digits and single underscores "
            f"with at most {MAX_NAME} characters."
        )
    elif any(path.exists() for path in _places(name, root)):
        msg = f"The platform {name!r} exists already."
    elif (
        keyword.iskeyword(name)
        or keyword.issoftkeyword(name)
        or name in _RESERVED | sys.stdlib_module_names | set(dir(builtins))
        or name in _names_in((root / KIT).read_text(encoding="utf-8"))
    ):
        msg = f"The name {name!r} is used by Python or by the contract tests; choose another one."
    else:
        return
    raise Refused(msg)


def new_files(name: str) -> dict[str, str]:
    """Return the content of each file to create, by path."""
    return {path: _render(template, name) for path, template in _templates(name)}


def changed_files(name: str, root: Path) -> dict[str, str]:
    """Return the new content of each file that registers the platform, by path."""
    kit = (root / KIT).read_text(encoding="utf-8")
    kit = _add_import(kit, name)
    kit = _insert_before(kit, r'    "web": web\.opened,\n', f'    "{name}": {name}.opened,\n')
    kit = _insert_before(kit, r"(?<=,\n)\]\n\"\"\"Platforms reached", f'    "{name}",\n')
    project = (root / PROJECT).read_text(encoding="utf-8")
    extra = f'{name} = ["aiohttp>=3.12"]\n'
    project = _insert_before(project, r'anthropic = \["anthropic', extra)
    project = _insert_before(project, r"(?<=,)anthropic,[^\n]*\]\"\]\n", f"{name},")
    return {KIT: kit, PROJECT: project}


def generate(name: str, root: Path = ROOT) -> list[str]:
    """Write all files and return their paths; write nothing if the name is refused."""
    check_name(name, root)
    texts = {**new_files(name), **changed_files(name, root)}
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    subprocess.run(  # in a new process, which finds the new platform
        [sys.executable, "-m", "scripts.configuration_docs"], cwd=root, check=True
    )
    return [*texts, DOCUMENTATION]


def main() -> int:
    """Generate the platform named on the command line."""
    parser = argparse.ArgumentParser(description="Add a chat platform to this tree.")
    parser.add_argument("name", nargs="?", default="", help="such as pigeon")
    name = parser.parse_args().name
    try:
        written = generate(name)
    except Refused as error:
        sys.stderr.write(f"{error}\n")
        return 2
    lines = ["Written:", *(f"  {path}" for path in written)]
    lines.append(NEXT_STEPS.format(name=name, documentation=DOCUMENTATION))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _places(name: str, root: Path) -> tuple[Path, ...]:
    return (
        root / "platforms" / name,
        root / "platforms" / f"{name}.py",
        root / "tests/fakes" / name,
        root / "tests/contract/services" / f"{name}.py",
    )


def _templates(name: str) -> Iterator[tuple[str, Path]]:
    for folder, target in (("platform", f"platforms/{name}"), ("fake", f"tests/fakes/{name}")):
        for template in sorted((TEMPLATES / folder).glob("*.tmpl")):
            yield f"{target}/{template.stem}", template
    yield f"tests/contract/services/{name}.py", TEMPLATES / "service.py.tmpl"


def _render(template: Path, name: str) -> str:
    words = name.split("_")
    text = Template(template.read_text(encoding="utf-8")).substitute(
        {
            "name": name,
            "host": name.replace("_", "-"),
            "VAR": name.upper(),
            "Class": "".join(word.capitalize() for word in words),
            "label": " ".join(word.capitalize() for word in words),
        }
    )
    return sort_imports(text)


def sort_imports(source: str) -> str:
    """Sort first-party imports and their members; the order depends on the platform's name."""
    statements = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").partition(".")[0] in _FIRST_PARTY
    ]
    if not statements:
        return source
    lines = source.splitlines(keepends=True)
    first, last = statements[0].lineno - 1, statements[-1].end_lineno
    ordered = sorted(statements, key=lambda node: node.module or "")
    written = "".join(_import_text(node, lines) for node in ordered)
    return "".join([*lines[:first], written, *lines[last:]])


def _import_text(node: ast.ImportFrom, lines: list[str]) -> str:
    if node.lineno != node.end_lineno:  # one member on each line, none of them with the name
        return "".join(lines[node.lineno - 1 : node.end_lineno])
    members = sorted((alias.name for alias in node.names), key=_member_order)
    return f"from {node.module} import {', '.join(members)}\n"


def _member_order(name: str) -> tuple[int, str]:
    """Order constants before classes before functions, as ruff does."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name


def _add_import(source: str, name: str) -> str:
    match = re.search(r"(?<=from tests\.contract\.services import \(\n)((?:    \w+,\n)+)", source)
    if match is None:
        msg = f"{KIT} has no list of imported services, so that {name!r} cannot be added."
        raise Refused(msg)
    members = sorted([*match[1].splitlines(keepends=True), f"    {name},\n"])
    return source[: match.start()] + "".join(members) + source[match.end() :]


def _insert_before(source: str, pattern: str, text: str) -> str:
    """Insert text before the only match of a pattern."""
    found = list(re.finditer(pattern, source))
    if len(found) != 1:
        msg = f"The place for {text.strip()!r} was not found, so that nothing was written."
        raise Refused(msg)
    return source[: found[0].start()] + text + source[found[0].start() :]


def _names_in(source: str) -> set[str]:
    """Return all identifiers of a module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.alias(name=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case _:
                pass
    return found


if __name__ == "__main__":
    sys.exit(main())
