"""Exit codes and error output of the program."""

import logging
import sys
from collections.abc import Callable
from types import TracebackType

from gateway.errors import HoldfastError
from sessions.values.exceptions import error_line, first_error
from sessions.values.visible_text import visible_text

log = logging.getLogger(__name__)

INTERRUPTED_EXIT_CODE = 130


def run_to_exit_code(
    run: Callable[[], None], on_error: Callable[[HoldfastError], None] = lambda _: None
) -> int:
    """Run a function and return the exit code; a `HoldfastError` is printed on stderr.

    `on_error` receives the error before that, for example to print it for a program.

    Unexpected exceptions pass through and end the process by `report_crash`.
    """
    try:
        run()
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    except BaseExceptionGroup as group:
        error = first_error(group, prefer=HoldfastError)
        if not isinstance(error, HoldfastError):
            raise
        on_error(error)
        return _print_error(error)
    except HoldfastError as error:
        on_error(error)
        return _print_error(error)
    return 0


def report_crash(
    _: type[BaseException], error: BaseException, __: TracebackType | None = None
) -> None:
    """Print one line about an unexpected exception and log the traceback (`sys.excepthook`)."""
    if logging.getLogger().handlers:
        log.critical("Holdfast ended by an internal error", exc_info=error)
    summary = error_line(first_error(error, prefer=HoldfastError))
    sys.stderr.write(f"holdfast: ended by an internal error: {visible_text(summary)}\n")


def _print_error(error: HoldfastError) -> int:
    for line in error.lines:
        sys.stderr.write(f"holdfast: {visible_text(line)}\n")
    return error.exit_code
