"""Figures about names, language and size of the code.

`python -m scripts.code_figures [TREE ...]` prints one column for each tree, so that two commits can
be compared. Without an argument it measures the tree that contains this script.
"""

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PACKAGES = ("gateway", "platforms", "agent", "sessions")
_USERS = ("tests", "scripts")
MAX_MODULES = 25
"""Modules that one folder may hold."""

MAX_PARAMETERS = 8
MAX_POSITIONAL = 5
MAX_LINES = 600

_WORD = re.compile(r"[A-Za-z]+(?:['\u2019][A-Za-z]+)*")
_DIRECTIVE = re.compile(r"#[:!]?\s*(?:noqa|type: ?ignore|pragma|ruff:)\S*(?: [A-Z]+[0-9]+,?)*")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")
_WORD_GROUPS = {
    "what": {"what"},
    "whoever, nobody, somebody, anybody": {"whoever", "nobody", "somebody", "anybody"},
    "it, its": {"it", "its"},
}
_QUESTION_WORDS = {"what", "whether", "how", "who"}
_BROAD = {"Exception", "BaseException"}
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(kw_only=True)
class Module:
    """One source file and the nodes that the counters need."""

    path: str
    name: str
    source: str
    tree: ast.Module
    docstrings: list[str] = field(default_factory=list)
    attribute_texts: list[str] = field(default_factory=list)
    classes: list[ast.ClassDef] = field(default_factory=list)
    functions: list[_Function] = field(default_factory=list)
    methods: set[_Function] = field(default_factory=set)
    calls: list[ast.Call] = field(default_factory=list)
    handlers: list[ast.ExceptHandler] = field(default_factory=list)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    attributes: list[ast.Attribute] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """Path of the folder, relative to the tree."""
        return self.path.rpartition("/")[0]

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self.source.count("\n")

    @cached_property
    def comments(self) -> str:
        """Words of all comments, without directives to the linters."""
        return " ".join(_comments(self.source))


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One row of the table."""

    label: str
    value: float | int
    found: tuple[str, ...] = ()
    note: str = ""

    @property
    def shown(self) -> str:
        """Value as the table prints it."""
        value = f"{self.value:.1f}" if isinstance(self.value, float) else str(self.value)
        return f"{value} ({self.note})" if self.note else value


def read_modules(root: Path, folders: Sequence[str] = PACKAGES) -> list[Module]:
    """Parse every module of the four packages, or of other folders, below `root`."""
    return [
        _read(path, root)
        for package in folders
        for path in sorted((root / package).rglob("*.py"))
        if "__pycache__" not in path.parts
    ]


def measure(modules: Sequence[Module], tests: Sequence[Module] = ()) -> list[Figure]:
    """Return all figures, in the order of the table; `tests` count only as users."""
    return [
        *measure_layout(modules, tests),
        *_words(modules),
        _question_docstrings(modules),
        _broad_handlers(modules),
        _long_files(modules),
    ]


def measure_layout(modules: Sequence[Module], tests: Sequence[Module]) -> list[Figure]:
    """Return the figures about folders, names and calls, which need no comments."""
    return [
        *_folders(modules),
        *_duplicate_classes(modules),
        _positional_calls(modules),
        _wide_functions(modules),
        *_unused_constants(modules, tests),
    ]


def _read(path: Path, root: Path) -> Module:
    source = path.read_text(encoding="utf-8")
    relative = path.relative_to(root)
    parts = relative.with_suffix("").parts
    module = Module(
        path=relative.as_posix(),
        name=".".join(parts[:-1] if parts[-1] == "__init__" else parts),
        source=source,
        tree=ast.parse(source),
    )
    for node in ast.walk(module.tree):
        _sort(node, module)
    return module


def _comments(source: str) -> Iterator[str]:
    """Yield the words of each comment, without directives to the linters."""
    if "#" not in source:
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield _DIRECTIVE.sub("", token.string)


def _sort(node: ast.AST, module: Module) -> None:
    if isinstance(node, (ast.Module, *_DEFINITIONS)):
        _read_texts(node, module)
    match node:
        case ast.ClassDef():
            module.classes.append(node)
            module.methods.update(each for each in node.body if isinstance(each, _Function))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            module.functions.append(node)
        case ast.Call():
            module.calls.append(node)
        case ast.ExceptHandler():
            module.handlers.append(node)
        case ast.Import() | ast.ImportFrom():
            module.imports.append(node)
        case ast.Attribute():
            module.attributes.append(node)
        case _:
            pass


def _read_texts(node: ast.Module | ast.ClassDef | _Function, module: Module) -> None:
    """Collect the docstring, and the texts below constants and attributes."""
    documented = ast.get_docstring(node)
    if documented is not None:
        module.docstrings.append(documented)
    for statement in node.body[documented is not None :]:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            text = statement.value.value
            if isinstance(text, str):
                module.attribute_texts.append(text)


def _folders(modules: Sequence[Module]) -> Iterator[Figure]:
    sizes = Counter(each.folder for each in modules if not each.path.endswith("__init__.py"))
    folder, size = max(sizes.items(), key=lambda item: item[1], default=("", 0))
    crowded = [(count, name) for name, count in sizes.items() if count > MAX_MODULES]
    yield Figure(label="modules", value=sizes.total())
    yield Figure(label="modules in the largest folder", value=size, note=folder)
    yield Figure(
        label=f"folders with more than {MAX_MODULES} modules",
        value=len(crowded),
        found=tuple(f"{name}: {count}" for count, name in sorted(crowded, reverse=True)),
    )


def _duplicate_classes(modules: Sequence[Module]) -> Iterator[Figure]:
    places: defaultdict[str, list[Module]] = defaultdict(list)
    for module in modules:
        for name in dict.fromkeys(each.name for each in module.classes):
            places[name].append(module)
    names = {name: found for name, found in sorted(places.items()) if len(found) > 1}

    def figure(label: str, chosen: Iterable[str]) -> Figure:
        found = tuple(f"{name}: {' '.join(each.path for each in names[name])}" for name in chosen)
        return Figure(label=label, value=len(found), found=found)

    yield figure("class names in two or more modules", names)
    yield figure("  public", [name for name in names if not name.startswith("_")])
    yield figure("  private", [name for name in names if name.startswith("_")])
    yield figure(
        "  in two or more folders",
        [name for name, found in names.items() if len({each.folder for each in found}) > 1],
    )


def _positional_calls(modules: Sequence[Module]) -> Figure:
    """Count calls of classes that the tree defines; a starred argument counts as one."""
    ours = {each.name for module in modules for each in module.classes}
    found = tuple(
        f"{module.path}:{call.lineno} {name} ({len(call.args)})"
        for module in modules
        for call in module.calls
        if len(call.args) > MAX_POSITIONAL
        and (name := _last_name(call.func)) in ours
        and _first_name(call.func) not in _library_names(module)
    )
    return Figure(
        label=f"objects built from {MAX_POSITIONAL + 1} or more positional arguments",
        value=len(found),
        found=found,
    )


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _last_name(value)
        case _:
            return ""


def _first_name(node: ast.expr) -> str:
    return _dotted(node.value if isinstance(node, ast.Subscript) else node).partition(".")[0]


def _library_names(module: Module) -> set[str]:
    """Return the names that a module imports from libraries."""
    return {
        alias.asname or alias.name.partition(".")[0]
        for statement in module.imports
        for alias in statement.names
        if _source(statement, alias).partition(".")[0] not in PACKAGES
    }


def _source(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    return (statement.module or "") if isinstance(statement, ast.ImportFrom) else alias.name


def _wide_functions(modules: Sequence[Module]) -> Figure:
    found = tuple(
        f"{module.path}:{function.lineno} {function.name} ({count})"
        for module in modules
        for function in module.functions
        if (count := _parameters(function, method=function in module.methods)) > MAX_PARAMETERS
    )
    label = f"functions with more than {MAX_PARAMETERS} parameters"
    return Figure(label=label, value=len(found), found=found)


def _parameters(function: _Function, *, method: bool) -> int:
    """Count the parameters, without the `self` or `cls` of a method."""
    given = function.args
    named = [each.arg for each in (*given.posonlyargs, *given.args)]
    bound = bool(method and named and named[0] in {"self", "cls"})
    starred = (given.vararg is not None) + (given.kwarg is not None)
    return len(named) - bound + len(given.kwonlyargs) + starred


def _words(modules: Sequence[Module]) -> Iterator[Figure]:
    counted: Counter[str] = Counter()
    for module in modules:
        for text in (*module.docstrings, *module.attribute_texts, module.comments):
            counted.update(word.lower() for word in _WORD.findall(text))
    total = counted.total()
    yield Figure(label="words in docstrings and comments", value=total)
    for label, group in _WORD_GROUPS.items():
        used = sum(counted[word] for word in group)
        yield Figure(label=f"per 1,000 words: {label}", value=1000 * used / max(1, total))


def _question_docstrings(modules: Sequence[Module]) -> Figure:
    texts = [text for module in modules for text in module.docstrings]
    firsts = [word.group().lower() for text in texts if (word := _WORD.search(text))]
    questions = sum(word in _QUESTION_WORDS for word in firsts)
    return Figure(
        label="% of docstrings that begin with What, Whether, How or Who",
        value=100 * questions / max(1, len(texts)),
    )


def _broad_handlers(modules: Sequence[Module]) -> Figure:
    found = tuple(
        f"{module.path}:{handler.lineno}"
        for module in modules
        for handler in module.handlers
        if _is_broad(handler.type)
    )
    return Figure(label="handlers of every exception", value=len(found), found=found)


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(map(_is_broad, caught.elts))
    return caught is None or _last_name(caught) in _BROAD


def _long_files(modules: Sequence[Module]) -> Figure:
    found = tuple(f"{each.path}: {each.lines}" for each in modules if each.lines > MAX_LINES)
    return Figure(label=f"files over {MAX_LINES} lines", value=len(found), found=found)


def _unused_constants(modules: Sequence[Module], tests: Sequence[Module]) -> Iterator[Figure]:
    """Count public constants that no other module, or no test either, imports or reads."""
    labels = ("public constants that no other module uses", "  and no test")
    for label, users in zip(labels, ((), tests), strict=True):
        used = {use for module in (*modules, *users) for use in _uses(module)}
        patched = {name for module in users for name in _patched(module)}
        found = tuple(
            f"{module.path} {name}"
            for module in modules
            for name in _constants(module.tree)
            if (module.name, name) not in used and name not in patched
        )
        yield Figure(label=label, value=len(found), found=found)


def _constants(tree: ast.Module) -> list[str]:
    """Return the public constants of a module; type variables are none."""
    names: dict[str, None] = {}
    for statement in tree.body:
        for target in _targets(statement):
            elements = target.elts if isinstance(target, ast.Tuple) else [target]
            for each in elements:
                if isinstance(each, ast.Name) and _CONSTANT.fullmatch(each.id):
                    names[each.id] = None
    return list(names)


def _targets(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec"))):
            return []
        case ast.Assign(targets=targets):
            return targets
        case ast.AnnAssign(target=target):
            return [target]
        case _:
            return []


def _uses(module: Module) -> Iterator[tuple[str, str]]:
    """Yield module and name of everything that `module` takes from other modules."""
    aliases: dict[str, str] = {}
    for statement in module.imports:
        for alias in statement.names:
            if isinstance(statement, ast.ImportFrom):
                source = statement.module or ""
                yield source, alias.name
                aliases[alias.asname or alias.name] = f"{source}.{alias.name}"
            elif alias.asname:
                aliases[alias.asname] = alias.name
    for attribute in module.attributes:
        dotted = _dotted(attribute.value)
        first, dot, rest = dotted.partition(".")
        yield aliases.get(first, first) + dot + rest, attribute.attr


def _patched(test: Module) -> Iterator[str]:
    """Yield the names of constants in strings, such as the one that `setattr` replaces."""
    for node in ast.walk(test.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.rpartition(".")[2]
            if _CONSTANT.fullmatch(name):
                yield name


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value)}.{name}"
        case _:
            return ""


def table(columns: dict[str, list[Figure]], *, listed: bool = False) -> str:
    """Align the figures of one or more trees."""
    rows = [["", *columns]]
    rows += [
        [figures[0].label, *(each.shown for each in figures)]
        for figures in zip(*columns.values(), strict=True)
    ]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [_aligned(row, widths) for row in rows]
    if listed:
        lines += [line for tree, figures in columns.items() for line in _lists(tree, figures)]
    return "\n".join(lines) + "\n"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    label, *values = row
    cells = (value.rjust(width) for value, width in zip(values, widths[1:], strict=True))
    return "  ".join([label.ljust(widths[0]), *cells]).rstrip()


def _lists(tree: str, figures: Iterable[Figure]) -> Iterator[str]:
    for figure in figures:
        if figure.found:
            yield f"\n{figure.label.strip()} ({tree})"
            yield from (f"  {each}" for each in figure.found)


def _as_json(columns: dict[str, list[Figure]], *, listed: bool) -> str:
    written = {
        tree: {
            figure.label.strip(): {
                "value": round(figure.value, 2),
                **({"note": figure.note} if figure.note else {}),
                **({"found": figure.found} if listed else {}),
            }
            for figure in figures
        }
        for tree, figures in columns.items()
    }
    return json.dumps(written, indent=2) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of each tree."""
    parser = argparse.ArgumentParser(description="Figures about names, language and size.")
    root = Path(__file__).parents[1]
    parser.add_argument("trees", metavar="TREE", nargs="*", type=Path, default=[root])
    parser.add_argument("--list", action="store_true", help="name every place that was counted")
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    chosen = parser.parse_args(arguments)
    columns: dict[str, list[Figure]] = {}
    for tree in chosen.trees:
        modules = read_modules(tree)
        if not modules:
            parser.error(f"{tree} contains none of: {', '.join(PACKAGES)}")
        columns[str(tree)] = measure(modules, read_modules(tree, _USERS))
    write = _as_json if chosen.json else table
    sys.stdout.write(write(columns, listed=chosen.list))


if __name__ == "__main__":
    main()
