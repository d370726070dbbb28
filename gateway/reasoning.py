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
        """All of it as Markdown; empty when there is nothing."""
        thoughts = [*self._steps, "".join(self._present).strip()]
        whole = "\n\n".join(filter(None, thoughts))
        if not whole:
            return ""
        if len(whole) > _MOST:
            whole = f"{whole[:_MOST].rstrip()} …"
        quoted = "\n".join(f"> {line}".rstrip() for line in whole.splitlines())
        return f"💭 **Thinking**\n{quoted}"
