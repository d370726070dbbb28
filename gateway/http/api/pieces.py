"""Sans-IO: a turn's news as what a program is told: text that only grows, tools in pairs, notices."""

import msgspec

from agent.events import (
    StepDone,
    TextDelta,
    TextReplaced,
    ToolFinished,
    ToolStarted,
)
from gateway.observe.redact import Redactor
from gateway.observe.redact_stream import Veil
from gateway.turns.answer import said
from gateway.turns.news import News, Told

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
    """One reader's view of a turn.

    Put together, what it gives is the answer as a chat shows it, unless words were taken back.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._veil = Veil(redactor)
        self._texts: list[str] = []  # of steps that are over
        self._text: list[str] = []  # of the present step, as it stands
        self._held = ""  # blanks at the beginning of a step: they count only before words
        self._step: list[str] = []  # of the present step, what was given
        self._earlier = False  # something was given before that
        self._running: dict[str, str] = {}
        self._known: set[str] = set()

    @property
    def text(self) -> str:
        """Give all that was said, as the chat would show it in the end."""
        return self._redactor.clean(said((*self._texts, "".join(self._text))))

    def hear(self, news: News) -> tuple[Piece, ...]:
        """Take in what happened; gives what is to be told of it."""
        match news:
            case TextDelta():
                self._text.append(news.text)
                return self._more(news.text)
            case TextReplaced():
                self._text = [news.text]
                return self._replaced(news.text)
            case StepDone():
                self._texts.append("".join(self._text))
                self._text = []
                return self._next_step()
            case ToolStarted():
                return (*self._rest(), *self._started(news))
            case ToolFinished():
                return self._over(news.call_id)
            case Told():
                return (Told(news.id, self._redactor.clean(news.text)),)
            case _:
                pass
        return ()

    def end(self) -> tuple[Piece, ...]:
        """The turn is over: so are the tools that it leaves behind."""
        left = list(self._running)
        return (*self._rest(), *(piece for call in left for piece in self._over(call)))

    def _replaced(self, text: str) -> tuple[Piece, ...]:
        """Go on behind what was given: it cannot be taken back."""
        given = self._held + "".join(self._step)
        return self._more(text[len(given) :]) if text.startswith(given) else self._next_step()

    def _next_step(self) -> tuple[Piece, ...]:
        self._earlier = self._earlier or bool(self._step)
        self._held = ""
        self._step.clear()
        return self._rest()

    def _more(self, text: str) -> tuple[Piece, ...]:
        if not self._step and not (self._held + text).strip():
            self._held += text
            return ()
        if not text:
            return ()
        added = self._held + text
        self._held = ""
        between = _BETWEEN if self._earlier and not self._step else ""
        self._step.append(added)
        return self._given(self._veil.add(between + added))

    def _rest(self) -> tuple[Piece, ...]:
        return self._given(self._veil.rest())

    def _given(self, text: str) -> tuple[Piece, ...]:
        return (More(text),) if text else ()

    def _started(self, news: ToolStarted) -> tuple[Piece, ...]:
        if not news.call_id or news.tool.startswith("_") or news.call_id in self._known:
            return ()
        self._known.add(news.call_id)
        self._running[news.call_id] = news.tool
        label = self._redactor.clean(news.label)
        return (ToolRuns(news.call_id, news.tool, label, news.emoji),)

    def _over(self, call_id: str) -> tuple[Piece, ...]:
        tool = self._running.pop(call_id, None)
        return () if tool is None else (ToolOver(call_id, tool),)
