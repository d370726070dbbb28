"""Sans-IO: what the model thinks, as a message of its own before the answer."""

_MAX_SHOWN_CHARS = 3000  # characters that are shown; nobody reads more of it


class ReasoningView:
    """The thoughts of a turn, step by step."""

    def __init__(self) -> None:
        self._steps: list[str] = []
        self._current: list[str] = []

    def append(self, text: str) -> None:
        """More of it came."""
        self._current.append(text)

    def replace_current(self, text: str) -> None:
        """The present step's thoughts begin anew."""
        self._current = [text] if text else []

    def step_done(self) -> None:
        """What follows belongs to the next step."""
        if thought := "".join(self._current).strip():
            self._steps.append(thought)
        self._current = []

    def text(self) -> str:
        """Show it for good, as Markdown: from the beginning; empty when there is nothing."""
        whole = self._full_text()
        return _quote(
            whole if len(whole) <= _MAX_SHOWN_CHARS else f"{whole[:_MAX_SHOWN_CHARS].rstrip()} …"
        )

    def latest_text(self) -> str:
        """Show it while it grows: long thoughts must not look as if they stood still."""
        whole = self._full_text()
        return _quote(
            whole if len(whole) <= _MAX_SHOWN_CHARS else f"… {whole[-_MAX_SHOWN_CHARS:].lstrip()}"
        )

    def _full_text(self) -> str:
        thoughts = [*self._steps, "".join(self._current).strip()]
        return "\n\n".join(filter(None, thoughts))


def _quote(thoughts: str) -> str:
    if not thoughts:
        return ""
    quoted = "\n".join(f"> {line}".rstrip() for line in thoughts.splitlines())
    return f"💭 **Thinking**\n{quoted}"
