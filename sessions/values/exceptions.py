"""Sans-IO: exceptions in words, and the cause of an exception group."""

from collections.abc import Iterator


def docstring_summary(error: BaseException) -> str:
    """Return the first line of the docstring of an error's class."""
    return (type(error).__doc__ or "").partition("\n")[0]


def error_text(error: BaseException) -> str:
    """Return an error's message, or its class name if it has no message."""
    return str(error) or type(error).__name__


def error_line(error: BaseException) -> str:
    """Return an error's class name and the first line of its message."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def first_error(error: BaseException, prefer: type[BaseException] | None = None) -> BaseException:
    """Return the first error in a group: of the class `prefer` if there is one, else of any class.

    An error that is no group is returned as it is.
    """
    leaves = list(_leaves(error))
    preferred = (leaf for leaf in leaves if prefer and isinstance(leaf, prefer))
    return next(preferred, leaves[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error
