"""Changes the modules that decide about safety, and checks that a test notices each change.

`python -m tests.mutants` judges all modules, `python -m tests.mutants access/people` those with this
in their path. Fails if a survivor is not in `accepted.toml`, if an entry of this file names no
survivor, or if less than 90 % of the mutants are killed.
"""

import argparse
import functools
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import engine
from tests.mutants.accepted import Key, as_entry, read_accepted
from tests.mutants.areas import TESTS
from tests.mutants.confine import can_confine
from tests.mutants.engine import Outcome
from tests.mutants.high_risk import judge_high_risk
from tests.mutants.operators import Mutant, find_mutants

_WANTED = 0.9  # share of the mutants that have to be killed


@dataclass(frozen=True, kw_only=True)
class ModuleResult:
    """Outcome of each mutant of a module, in the order of `find_mutants`."""

    module: str
    outcomes: dict[int, Outcome]
    reached: dict[int, int | None]  # number of tests that reach the change
    seconds: float
    error: str = ""


def judge(module: str, function: str) -> ModuleResult:
    """Judge one module; the mutants are told by number, because this runs in another process."""
    began = time.monotonic()
    numbers = {mutant.key: number for number, mutant in enumerate(mutants_of(module))}
    outcomes: dict[int, Outcome] = {}
    reached: dict[int, int | None] = {}
    error = ""
    try:
        for verdict in engine.judge_module(module, TESTS[module], function):
            number = numbers[verdict.mutant.key]
            outcomes[number] = min(
                verdict.outcome, outcomes.get(number, verdict.outcome), key=lambda each: each.value
            )
            reached[number] = verdict.tests
    except engine.BrokenTests as broken:
        error = str(broken)
    return ModuleResult(
        module=module,
        outcomes=outcomes,
        reached=reached,
        seconds=time.monotonic() - began,
        error=error,
    )


def mutants_of(module: str) -> list[Mutant]:
    """Return the mutants of a module; those with the same key count as one."""
    tree = engine.parse_module(module)
    return list({mutant.key: mutant for mutant in find_mutants(module, tree)}.values())


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="parts of the paths of modules")
    parser.add_argument("--function", default="", help="only functions with this in their name")
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--toml", action="store_true", help="print survivors as entries")
    parser.add_argument("--high-risk", type=Path, help="judge only the mutants of this file")
    parser.add_argument("--unconfined", action="store_true", help="run without Landlock too")
    options = parser.parse_args(arguments)
    engine.load_libraries()
    if options.high_risk:
        return judge_high_risk(options.high_risk)
    if not (options.unconfined or can_confine()):
        _say(
            "Changed code could write anywhere, because this kernel has no Landlock 3 (Linux 6.2)."
        )
        _say("In a machine without anything of value, use --unconfined.")
        return 2
    chosen = [
        module
        for module in TESTS
        if not options.modules or any(part in module for part in options.modules)
    ]
    chosen.sort(key=lambda module: -len(mutants_of(module)))  # the longest first
    accepted = read_accepted()
    _print_row("module", "mutants", "killed", "timeout", "survived", "accepted", "percent", "s")
    results = []
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=None) as pool:
        work = functools.partial(judge, function=options.function)
        for result in pool.imap_unordered(work, chosen):
            results.append(result)
            _print_module(result, accepted, toml=options.toml)
    return _summarize(results, accepted, partial=bool(options.function))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _print_row(*cells: object) -> None:
    first, *others = cells
    _say(" ".join([f"{first:<38}", *(f"{cell!s:>9}" for cell in others)]))


def _print_module(result: ModuleResult, accepted: dict[Key, str], *, toml: bool) -> None:
    counts = Counter(result.outcomes.values())
    survivors = _survivors(result)
    new = [mutant for mutant in survivors if mutant.key not in accepted]
    _print_counts(result.module, counts, len(survivors) - len(new), result.seconds)
    for mutant in new:
        _say(as_entry(mutant) + "\n" if toml else _diff(mutant))
    if result.error:
        _say(f"  {result.error}")


def _print_counts(name: str, counts: Counter[Outcome], known: int, seconds: float) -> None:
    survived, timeout = counts[Outcome.SURVIVED], counts[Outcome.TIMEOUT]
    killed = counts[Outcome.KILLED] + timeout
    percent = f"{100 * _share(counts):.1f}"
    _print_row(name, killed + survived, killed, timeout, survived, known, percent, f"{seconds:.0f}")


def _share(counts: Counter[Outcome]) -> float:
    return 1 - counts[Outcome.SURVIVED] / max(1, counts.total())


def _survivors(result: ModuleResult) -> list[Mutant]:
    mutants = mutants_of(result.module)
    return [
        mutants[number]
        for number, outcome in sorted(result.outcomes.items())
        if outcome is Outcome.SURVIVED
    ]


def _summarize(results: Iterable[ModuleResult], accepted: dict[Key, str], *, partial: bool) -> int:
    counts: Counter[Outcome] = Counter()
    survivors: list[Mutant] = []
    stale = dict(accepted)
    seconds, broken, judged = 0.0, False, set()
    for result in results:
        counts.update(result.outcomes.values())
        survivors += _survivors(result)
        seconds += result.seconds
        broken = broken or bool(result.error)
        judged.add(result.module)
    for mutant in survivors:
        stale.pop(mutant.key, None)
    known = [mutant for mutant in survivors if mutant.key in accepted]
    new = [mutant for mutant in survivors if mutant.key not in accepted]
    unneeded = [key for key in stale if key[0] in judged and not partial and not broken]
    _print_counts("total", counts, len(known), seconds)
    if known:
        _say("\nAccepted survivors:")
        for mutant in known:
            _say(f"{_diff(mutant)}\n  {accepted[mutant.key]}")
    if new:
        _say(f"\n{len(new)} survivors need a test, or a reason in accepted.toml:")
        for mutant in new:
            _say(_diff(mutant))
    for key in unneeded:
        _say(f"\nDelete this entry of accepted.toml, no mutant survives it:\n  {key}")
    return int(broken or bool(new) or bool(unneeded) or _share(counts) < _WANTED)


def _diff(mutant: Mutant) -> str:
    place = f"{mutant.module}:{mutant.lines.start} {mutant.function or '(module)'} [{mutant.kind}]"
    return f"{place}\n  - {mutant.before}\n  + {mutant.after}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
