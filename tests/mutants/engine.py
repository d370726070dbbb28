"""Runs the tests of a module against its mutants, each in a forked process.

The tests are collected once, and run once to learn which tests reach which line. For a mutant inside
a function a fork replaces the code of the function and runs the tests that reach the changed line,
the fastest first, until one fails. A mutant of code that runs during the import needs a process that
has not imported the module yet: there a fork imports the changed module and all of its tests.
"""

import ast
import contextlib
import enum
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import mmap
import os
import resource
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest

from tests.mutants.confine import can_confine, confine_writes
from tests.mutants.operators import Mutant, called_during_import, find_mutants

ROOT = Path(__file__).parents[2]
_MEMORY = 6 * 1024**3  # bytes of address space: an endless loop must not fill the machine
_BASELINE_SECONDS = 600
_BROKEN = 70  # exit code of a fork that failed outside of the tests
_IMPORT_SECONDS = 30
_LOADED_EARLY = (
    "msgspec",
    "pytest_asyncio",
    "pytest_timeout",
    "sqlalchemy.ext.asyncio",
    "starlette",
)


class Outcome(enum.Enum):
    """Result of the tests for a mutant."""

    SURVIVED = 0
    KILLED = 1
    TIMEOUT = 2


@dataclass(kw_only=True)
class Baseline:
    """Result of the tests for the unchanged module."""

    seconds: dict[str, float] = field(default_factory=dict)  # by test
    reached: dict[str, list[str]] = field(default_factory=dict)  # tests by module:line
    failed: list[str] = field(default_factory=list)

    def tests_of(self, mutant: Mutant, *, is_coroutine: bool) -> dict[str, bool]:
        """Return the tests that may notice, each with True if it reaches the changed lines.

        Lines of a coroutine behind an exception from an `await` are sometimes not measured. There
        all tests of the function count, and elsewhere if none reaches the changed lines.
        """
        direct = self._tests_at(mutant, mutant.lines)
        if direct and not is_coroutine:
            return dict.fromkeys(direct, True)
        return {name: name in direct for name in self._tests_at(mutant, mutant.function_lines)}

    def _tests_at(self, mutant: Mutant, lines: range) -> set[str]:
        keys = (f"{mutant.module}:{line}" for line in lines)
        return {name for key in keys for name in self.reached.get(key, ())}


def load_libraries() -> None:
    """Import what every test needs, so that the forks need not."""
    for name in _LOADED_EARLY:
        importlib.import_module(name)


def fork(work: Callable[[], int], seconds: float) -> int | None:
    """Run work in a forked process; return its exit code, or None after the timeout."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = _BROKEN
        try:
            os.setpgid(0, 0)
            code = work()
        finally:
            os._exit(code)
    ends = time.monotonic() + seconds
    pause = 0.001
    while time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.2, 0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def judge(work: Callable[[], int], seconds: float) -> Outcome:
    """Run tests in a forked process that may use this many seconds of CPU time."""

    def limited() -> int:
        limit = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        return work()

    code = fork(limited, 30 + seconds * 4)  # a busy machine gives a process little time
    if code is None or code == -signal.SIGXCPU:
        return Outcome.TIMEOUT
    if code in {_BROKEN, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED}:
        raise RuntimeError(code)  # otherwise every mutant would count as killed
    return Outcome.KILLED if code else Outcome.SURVIVED


def _run_pytest(tests: Iterable[str], plugin: object, folder: str) -> int:
    """Run pytest in this process, without cache and output; it can write in the folder only."""
    os.environ["TMPDIR"] = tempfile.tempdir = folder  # noqa: TID251 - the tests read it
    if can_confine():
        confine_writes(Path(folder))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(null, stream)
    os.chdir(ROOT)
    options = ["-x", "-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider"]
    return int(pytest.main([*tests, *options, f"--basetemp={folder}/tests"], plugins=[plugin]))


def _make_repeatable() -> None:
    """Make Hypothesis try the same examples for every mutant, and remember none."""
    hypothesis.settings.register_profile(
        "mutants", deadline=None, database=None, derandomize=True, print_blob=False
    )
    hypothesis.settings.load_profile("mutants")


# --- mutants inside functions ------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """One mutant inside a function."""

    mutant: Mutant
    tree: ast.Module  # of the module that contains the mutant
    test: str = ""  # test function that has to notice; empty: any test may notice


class CollectedTests:
    """pytest plugin: runs collected tests once for each mutant, and reports the outcomes."""

    def __init__(self, cases: Sequence[Case], report: Callable[[object], None]) -> None:
        self._cases = cases
        self._report = report

    def pytest_sessionstart(self) -> None:
        """Prepare Hypothesis before any test is defined."""
        _make_repeatable()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests for the unchanged modules, then for each mutant."""
        self._report({"libraries": _imported_libraries()})
        baseline = _measure(session, {case.mutant.module for case in self._cases})
        if baseline.failed:
            self._report({"failed": baseline.failed})
            return True
        functions: dict[str, dict[tuple[str, int], types.FunctionType]] = {}
        noticed: Counter[str] = Counter()  # mutants by test
        failed = mmap.mmap(-1, 4)  # shared with the forks: the position of the test that failed
        for number, case in enumerate(self._cases):
            module = case.mutant.module
            if module not in functions:
                functions[module] = dict(_functions_of(importlib.import_module(_dotted(module))))
            function = functions[module].get((case.mutant.function, case.mutant.function_line))
            code = _code_of(case)
            if function is None or function.__code__.co_freevars != code.co_freevars:
                self._report({"number": number, "outcome": None})
                continue
            is_coroutine = bool(code.co_flags & inspect.CO_COROUTINE)
            names = baseline.tests_of(case.mutant, is_coroutine=is_coroutine)
            items = [
                item
                for item in session.items
                if case.test in {"", item.nodeid.partition("[")[0]} and item.nodeid in names
            ]
            # Tests that are fast, or have noticed many mutants, come first.
            items.sort(
                key=lambda item: (
                    not names[item.nodeid],
                    baseline.seconds[item.nodeid] / (1 + noticed[item.nodeid]),
                )
            )
            seconds = 4 + 3 * sum(baseline.seconds[item.nodeid] for item in items)
            times = [baseline.seconds[item.nodeid] for item in items]
            work = functools.partial(_run_mutant, session, items, times, (function, code), failed)
            outcome = judge(work, seconds) if items else Outcome.SURVIVED
            if outcome is Outcome.KILLED:
                noticed[items[int.from_bytes(failed[:4])].nodeid] += 1
            self._report({"number": number, "outcome": outcome.name, "tests": len(items)})
        return True


def _run_mutant(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    times: Sequence[float],
    change: tuple[types.FunctionType, types.CodeType],
    failed: mmap.mmap,
) -> int:
    """Replace the code of a function and run tests until one fails; return 1 if one did.

    `times` has the seconds of each test without a mutant. A test that takes far longer has noticed.
    """
    function, code = change
    function.__code__ = code
    for position, (item, following) in enumerate(itertools.zip_longest(items, items[1:])):
        failed[:4] = position.to_bytes(4)
        _limit_time(item, times[position])
        _run_item(item, following)
        if session.testsfailed:
            return 1
    return 0


def _limit_time(item: pytest.Item, seconds: float) -> None:
    """Limit the CPU time and the wait of the next test; the process may have used any time before.

    The longer limit of real time is for a busy machine.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime + 3 + 5 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (min(soft, hard), hard))
    item.add_marker(pytest.mark.timeout(20 + 20 * seconds), append=False)


def _measure(session: pytest.Session, modules: Iterable[str]) -> Baseline:
    """Run all tests in a fork with coverage, so that this process stays as it is."""
    paths = [str(ROOT / module) for module in modules]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "baseline.json")

        def work() -> int:
            baseline = Baseline()
            measure = coverage.Coverage(data_file=None, include=paths, config_file=False)
            measure.set_option("run:disable_warnings", ["no-data-collected"])
            measure.start()
            for item, following in itertools.zip_longest(session.items, session.items[1:]):
                measure.switch_context(item.nodeid)
                began, failures = time.perf_counter(), session.testsfailed
                _run_item(item, following)
                baseline.seconds[item.nodeid] = time.perf_counter() - began
                if session.testsfailed > failures:
                    baseline.failed.append(item.nodeid)
            measure.stop()
            for path in paths:
                module = str(Path(path).relative_to(ROOT))
                for line, contexts in measure.get_data().contexts_by_lineno(path).items():
                    baseline.reached[f"{module}:{line}"] = [each for each in contexts if each]
            result.write_text(json.dumps(vars(baseline)))
            return 0

        if fork(work, _BASELINE_SECONDS) != 0:
            return Baseline(failed=["the tests did not end"])
        return Baseline(**json.loads(result.read_text()))


def _run_item(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _dotted(module: str) -> str:
    return module.removesuffix(".py").replace("/", ".")


def _functions_of(
    owner: object, inside: str = ""
) -> Iterator[tuple[tuple[str, int], types.FunctionType]]:
    """Yield the functions of a module or class, also below properties and class methods."""
    for value in list(vars(owner).values()):
        if isinstance(value, type) and value.__qualname__.startswith(inside):
            if inside or value.__module__ == getattr(owner, "__name__", ""):
                yield from _functions_of(value, f"{value.__qualname__}.")
            continue
        function = value
        for name in ("fget", "__func__", "__wrapped__", "func"):
            function = getattr(function, name, function)
        if isinstance(function, types.FunctionType):
            yield (function.__qualname__, function.__code__.co_firstlineno), function


def _code_of(case: Case) -> types.CodeType:
    """Return the changed code of the function that contains the mutant."""
    wanted = (case.mutant.function, case.mutant.function_line)
    for each in _codes_of(case.mutant.compile(case.tree)):
        if (each.co_qualname, each.co_firstlineno) == wanted:
            return each
    raise LookupError(wanted)


def _codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _codes_of(each)


# --- mutants of code that runs during the import -----------------------------------------------


class _MutatedLoader(importlib.machinery.SourceFileLoader):
    """Loader that returns the code of a mutant instead of the code of the file."""

    code: types.CodeType

    def get_code(self, fullname: str) -> types.CodeType:
        return self.code


class _MutantFinder(importlib.abc.MetaPathFinder):
    """Finder that knows one module."""

    def __init__(self, module: str, code: types.CodeType) -> None:
        self._name = _dotted(module)
        self._path = str(ROOT / module)
        self._code = code

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _MutatedLoader(fullname, self._path)
        loader.code = self._code
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


class _ImportedTests:
    """pytest plugin: prepares Hypothesis before any test is defined."""

    def pytest_sessionstart(self) -> None:
        _make_repeatable()


def judge_import(mutant: Mutant, tree: ast.Module, tests: Iterable[str]) -> Outcome:
    """Run tests in a process that imports the mutant in place of the module."""
    code = mutant.compile(tree)
    with _new_folder() as folder:

        def work() -> int:
            sys.meta_path.insert(0, _MutantFinder(mutant.module, code))
            try:
                importlib.import_module(_dotted(mutant.module))
            except Exception:  # noqa: BLE001 - a mutant may raise anything, and no test would run
                return 1
            return _run_pytest(tests, _ImportedTests(), folder)

        return judge(work, _IMPORT_SECONDS)


# --- runs --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Outcome of one mutant."""

    mutant: Mutant
    outcome: Outcome
    tests: int | None  # number of tests that reach the change; None: all tests of the module


class BrokenTests(Exception):
    """Tests fail without any mutant."""

    def __init__(self, failed: object) -> None:
        super().__init__(f"these tests fail without a mutant: {failed}")


def judge_module(module: str, tests: Sequence[str], function: str = "") -> Iterator[Verdict]:
    """Yield the outcome of each mutant of a module, or of those in functions of this name."""
    tree = parse_module(module)
    during_import = called_during_import(tree)
    cases = [
        Case(mutant=mutant, tree=tree)
        for mutant in find_mutants(module, tree)
        if function in mutant.function
    ]
    imported = [
        case
        for case in cases
        if not case.mutant.function or case.mutant.function.split(".")[0] in during_import
    ]
    swapped = [case for case in cases if case not in imported]
    for case, outcome, count in judge_cases(swapped, tests):
        if outcome is None:
            imported.append(case)
        else:
            yield Verdict(mutant=case.mutant, outcome=outcome, tests=count)
    for case in imported:
        outcome = judge_import(case.mutant, tree, tests)
        yield Verdict(mutant=case.mutant, outcome=outcome, tests=None)


def parse_module(module: str) -> ast.Module:
    """Parse a module, given by its path below the root."""
    return ast.parse((ROOT / module).read_text(), module)


def judge_cases(
    cases: Sequence[Case], tests: Iterable[str]
) -> Iterator[tuple[Case, Outcome | None, int]]:
    """Yield the outcome of each case; None if its function cannot be found after the import."""
    if not cases:
        return
    for message in _reports_of(cases, tests):
        if "failed" in message:
            raise BrokenTests(message["failed"])
        if "libraries" in message:
            _import_libraries(message["libraries"])
            continue
        name = message["outcome"]
        outcome = None if name is None else Outcome[name]
        yield cases[message["number"]], outcome, message.get("tests", 0)


def _imported_libraries() -> list[str]:
    """Return the imported modules that are not part of this project."""
    own = {folder.name for folder in ROOT.iterdir()} | {"conftest"}
    return [name for name in sys.modules if name.partition(".")[0] not in own]


def _import_libraries(names: Iterable[str]) -> None:
    """Import the libraries of the tests, so that the forks which import a mutant need not."""
    for name in names:
        with contextlib.suppress(Exception):  # some cannot be imported by this name
            importlib.import_module(name)


def _reports_of(cases: Sequence[Case], tests: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Run pytest in a fork and yield its reports as they come."""
    reader, writer = os.pipe()
    with _new_folder() as folder:
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                with os.fdopen(writer, "w", buffering=1) as pipe:

                    def report(message: object) -> None:
                        pipe.write(json.dumps(message) + "\n")

                    code = _run_pytest(tests, CollectedTests(cases, report), folder)
                    if code != pytest.ExitCode.OK:
                        report({"failed": f"pytest ended with code {code}"})
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            for line in pipe:
                yield json.loads(line)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def _new_folder() -> Iterator[str]:
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="mutants-") as folder:
        yield folder
