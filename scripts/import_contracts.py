"""Additional import contracts for import-linter."""

import ast
from pathlib import Path

from grimp import ImportGraph
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain.contract import ContractCheck
from importlinter.domain.imports import ModuleExpression

MARK = "Sans-IO:"


class SansIOContract(ForbiddenContract):
    """Forbids imports with side effects in pure modules.

    The contract applies to every module whose docstring begins with `MARK` and to the listed modules.
    A listed module that does not exist is skipped.
    """

    type_name = "sans_io"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Select the pure modules, then check them like any forbidden import."""
        listed = {expression.expression for expression in self.source_modules}
        ours = {name for name in graph.modules if not graph.is_module_squashed(name)}
        pure = {name for name in ours if name in listed or _is_marked(name)}
        self.source_modules = {ModuleExpression(name) for name in pure}
        return super().check(graph, verbose)


def _is_marked(module: str) -> bool:
    path = Path(*module.split("."))
    for source in (path.with_suffix(".py"), path / "__init__.py"):
        if source.is_file():
            docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
            return (docstring or "").startswith(MARK)
    return False
