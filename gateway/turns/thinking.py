"""Sans-IO: the model's reasoning, as a message above the answer."""

from collections.abc import Callable

_MAX_SHOWN_CHARS = 3000
_MARGIN_CHARS = 20_000  # beside the shown part, so that a secret at its edge is recognized


class ReasoningView:
    """Reasoning of a turn, step by step; secrets are masked before a long reasoning is cut."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._steps: list[str] = []
        self._current: list[str] = []

    def append(self, text: str) -> None:
        """Append a piece of reasoning to the present step."""
        self._current.append(text)

    def replace_current(self, text: str) -> None:
        """Replace the reasoning of the present step."""
        self._current = [text] if text else []

    def step_done(self) -> None:
        """Finish the present step; later reasoning belongs to the next one."""
        if thought := "".join(self._current).strip():
            self._steps.append(thought)
        self._current = []

    def text(self) -> str:
        """Return the final form as Markdown: the beginning if it is long, empty without reasoning."""
        whole = self._full_text()
        if len(whole) <= _MAX_SHOWN_CHARS:
            return _quote(whole)
        beginning = self._redact(whole[: _MAX_SHOWN_CHARS + _MARGIN_CHARS])
        return _quote(f"{beginning[:_MAX_SHOWN_CHARS].rstrip()} …")

    def latest_text(self) -> str:
        """Return the live form: the end of a long reasoning, so that people see it advance."""
        whole = self._full_text()
        if len(whole) <= _MAX_SHOWN_CHARS:
            return _quote(whole)
        end = self._redact(whole[-_MAX_SHOWN_CHARS - _MARGIN_CHARS :])
        return _quote(f"… {end[-_MAX_SHOWN_CHARS:].lstrip()}")

    def _full_text(self) -> str:
        thoughts = [*self._steps, "".join(self._current).strip()]
        return "\n\n".join(filter(None, thoughts))


def _quote(thoughts: str) -> str:
    if not thoughts:
        return ""
    quoted = "\n".join(f"> {line}".rstrip() for line in thoughts.splitlines())
    return f"💭 **Thinking**\n{quoted}"
