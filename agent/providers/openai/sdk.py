"""The official SDK, without the modules that its import loads but this project never uses.

`openai.types` describes every request and response in 500 modules. Their import takes half of the
CPU of a start, and 10 MB. This module defers the packages of `openai.types` until first use.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_LOADING = threading.RLock()


class _DeferredPackage(Loader):
    """Loader that runs a package's code on the first access to a name that the package lacks."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See `Loader`."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module empty, apart from a `__getattr__` that fills it."""
        begun = False

        def load(name: str) -> Any:  # noqa: ANN401 - the value of any name
            nonlocal begun
            with _LOADING:
                if not begun:
                    begun = True
                    self._loader.exec_module(module)
            try:
                return vars(module)[name]
            except KeyError:
                msg = f"module {module.__name__!r} has no attribute {name!r}"
                raise AttributeError(msg, name=name, obj=module) from None

        vars(module)["__getattr__"] = load


class _PackageFinder(MetaPathFinder):
    """Finder for a package and the packages inside it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the usual spec with a deferring loader; None for plain modules."""
        if not f"{fullname}.".startswith(f"{self._package}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None or spec.submodule_search_locations is None:
            return None
        spec.loader = _DeferredPackage(spec.loader)
        return spec


@contextmanager
def defer_package(package: str) -> Iterator[None]:
    """Defer the code of a package and the packages inside it, if the block imports them first."""
    finder = _PackageFinder(package)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with defer_package("openai.types"):
    import openai

__all__ = ["openai"]
