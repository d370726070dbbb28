"""Sans-IO: a turn's news as what a program is told: text that only grows, tools in pairs, notices."""

import msgspec

from agent.events import (
    StepDone,
    TextDelta,
    TextReplaced,
    ToolFinished,
    ToolStarted,
)
from gateway.news import News, Told

_BETWEEN = "\n\n"  # two steps of an answer


class More(msgspec.Struct, frozen=True):
    """The answer goes on."""

    text: str


class ToolRuns(msgspec.Struct, frozen=True):
    """A tool begins; exactly one `ToolOver` with the same id follows."""

    id: str
    tool: str
    label: str
    emoji: str


class ToolOver(msgspec.Struct, frozen=True):
    """A tool has come to its end, whatever that was."""

    id: str
    tool: str


Piece = More | ToolRuns | ToolOver | Told


class Story:
    """One reader's view of a turn. Put together, what it gives is the answer as a chat shows it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""  # blanks at the beginning of a step: they count only before words
        self._step = ""  # of the present step, what was given
        self._running: dict[str, str] = {}
        self._known: set[str] = set()

    @property
    def text(self) -> str:
        """All that was said so far."""
        return "".join(self._pieces)

    def hear(self, news: News) -> tuple[Piece, ...]:
        """Take in what happened; gives what is to be told of it."""
        match news:
            case TextDelta():
                return self._more(news.text)
            case TextReplaced():
                shown = self._held + self._step
                grown = news.text.startswith(shown)  # what was given cannot be taken back
                return self._more(news.text[len(shown) :]) if grown else ()
            case StepDone():
                self._held = self._step = ""
            case ToolStarted():
                return self._started(news)
            case ToolFinished():
                return self._over(news.call_id)
            case Told():
                return (news,)
            case _:
                pass
        return ()

    def end(self) -> tuple[Piece, ...]:
        """The turn is over: so are the tools that it leaves behind."""
        return tuple(piece for call_id in list(self._running) for piece in self._over(call_id))

    def _more(self, text: str) -> tuple[Piece, ...]:
        if not self._step and not (self._held + text).strip():
            self._held += text
            return ()
        if not text:
            return ()
        added = self._held + text
        self._held = ""
        if not self._step and self._pieces:
            self._pieces.append(_BETWEEN)
            given = _BETWEEN + added
        else:
            given = added
        self._step += added
        self._pieces.append(added)
        return (More(given),)

    def _started(self, news: ToolStarted) -> tuple[Piece, ...]:
        if not news.call_id or news.tool.startswith("_") or news.call_id in self._known:
            return ()
        self._known.add(news.call_id)
        self._running[news.call_id] = news.tool
        return (ToolRuns(news.call_id, news.tool, news.label, news.emoji),)

    def _over(self, call_id: str) -> tuple[Piece, ...]:
        tool = self._running.pop(call_id, None)
        return (ToolOver(call_id, tool),) if tool else ()
