"""Sans-IO: what the model thinks, as a message of its own before the answer."""

_MOST = 3000  # characters that are shown; nobody reads more of it


class ReasoningView:
    """The thoughts of a turn, step by step."""

    def __init__(self) -> None:
        self._steps: list[str] = []
        self._present: list[str] = []

    def said(self, text: str) -> None:
        """More of it came."""
        self._present.append(text)

    def replaced(self, text: str) -> None:
        """The present step's thoughts begin anew."""
        self._present = [text] if text else []

    def step_done(self) -> None:
        """What follows belongs to the next step."""
        if thought := "".join(self._present).strip():
            self._steps.append(thought)
        self._present = []

    def text(self) -> str:
        """Show it for good, as Markdown: from the beginning; empty when there is nothing."""
        whole = self._whole()
        return _quoted(whole if len(whole) <= _MOST else f"{whole[:_MOST].rstrip()} …")

    def newest(self) -> str:
        """Show it while it grows: long thoughts must not look as if they stood still."""
        whole = self._whole()
        return _quoted(whole if len(whole) <= _MOST else f"… {whole[-_MOST:].lstrip()}")

    def _whole(self) -> str:
        thoughts = [*self._steps, "".join(self._present).strip()]
        return "\n\n".join(filter(None, thoughts))


def _quoted(thoughts: str) -> str:
    if not thoughts:
        return ""
    quoted = "\n".join(f"> {line}".rstrip() for line in thoughts.splitlines())
    return f"💭 **Thinking**\n{quoted}"
