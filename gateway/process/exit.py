"""Exit codes and error output of the program."""

import logging
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

from gateway.errors import HoldfastError

log = logging.getLogger(__name__)

INTERRUPTED_EXIT_CODE = 130


def run_to_exit_code(run: Callable[[], None]) -> int:
    """Run a function and return the exit code; a `HoldfastError` is printed on stderr.

    Unexpected exceptions pass through and end the process by `report_crash`.
    """
    try:
        run()
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    except BaseExceptionGroup as group:
        error = first_error(group)
        if not isinstance(error, HoldfastError):
            raise
        return _print_error(error)
    except HoldfastError as error:
        return _print_error(error)
    return 0


def report_crash(
    _: type[BaseException], error: BaseException, __: TracebackType | None = None
) -> None:
    """Print one line about an unexpected exception and log the traceback (`sys.excepthook`)."""
    if logging.getLogger().handlers:
        log.critical("Holdfast ended by an internal error", exc_info=error)
    leaf = first_error(error) if isinstance(error, BaseExceptionGroup) else error
    summary = f"{type(leaf).__name__}: {leaf}".partition("\n")[0]
    sys.stderr.write(f"holdfast: ended by an internal error: {summary}\n")


def _print_error(error: HoldfastError) -> int:
    for line in error.lines:
        sys.stderr.write(f"holdfast: {line}\n")
    return error.exit_code


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error to report: a `HoldfastError` if there is one, else the first leaf."""
    leaves = list(_leaves(group))
    return next((leaf for leaf in leaves if isinstance(leaf, HoldfastError)), leaves[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error
