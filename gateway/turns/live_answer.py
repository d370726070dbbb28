"""The answer of a turn as its chat sees it grow: text, the line below it, and what the model thinks."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from agent.events import (
    AnswerEvent,
    Notice,
    ReasoningDelta,
    ReasoningReplaced,
    StepDone,
    TextDelta,
    TextReplaced,
    ToolFinished,
    ToolStarted,
)
from gateway.delivery.outbox import Delivery, LiveItem
from gateway.notices.compose import command_form
from gateway.turns.answer import answer_item, reasoning_item, said
from gateway.turns.status_line import StatusLine
from gateway.turns.thinking import ReasoningView
from platforms.core.contract import Capabilities, Live
from sessions.changes import Change, PutItem
from sessions.conversation.events import RunningTurn
from sessions.records import Item
from sessions.values.clock import Clock


class LiveAnswer:
    """Shows what was said so far; what becomes of it in the store is the turn's business."""

    def __init__(
        self,
        turn: RunningTurn,
        delivery: Delivery,
        can: Capabilities | None,
        clock: Clock,
        *,
        models: Mapping[str, str],
        show_reasoning: bool,
    ) -> None:
        self.reply_to = turn.reply_to  # of what was asked last
        self._turn = turn
        self._clock = clock
        self._models = models  # as they are named in a chat, by label
        self._steps: list[str] = []  # the visible text of steps that are over
        self._pieces: list[str] = []  # the text of the present step
        self._status = StatusLine(command_form(can), tasks_apart=can is not None and can.tasks)
        self.streams = can is not None and can.live is Live.STREAM
        """Whether what was shown can no longer be changed."""
        self._clears = can is not None and can.status  # a status can be taken away
        self._thoughts = ReasoningView()
        self._thinking: LiveItem | None = None
        if show_reasoning:  # it stands before the answer, so it is entered first
            self._thinking = delivery.live(self._reasoning(final=False))
        self._live: LiveItem = delivery.live(self._item("", final=False))

    # --- what was said --------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Of the present step; put together only when somebody wants to see it."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @text.setter
    def text(self, text: str) -> None:
        self._pieces = [text] if text else []

    def whole(self) -> str:
        """Give the text of all steps, as the chat shows it."""
        if not self._steps:
            return self.text
        return said((*self._steps, self.text))

    @property
    def _has_said(self) -> bool:
        return bool(self._pieces) or any(self._steps)

    def go_on_from(self, steps: Iterable[str], text: str) -> None:
        """An earlier process said this already."""
        self._steps = list(steps)
        self.text = text

    def step_kept(self) -> None:
        """From here on the history holds the text of the present step."""
        if self.text:
            self._steps.append(self.text)
            self.text = ""

    # --- while it grows -------------------------------------------------------------------------

    def show(self, event: AnswerEvent) -> None:
        """Let the chat see what the agent told."""
        match event:
            case TextDelta():
                if self.streams:
                    self._show_thoughts()
                self._pieces.append(event.text)
                self._status.alive()
            case TextReplaced():
                self.text = event.text
            case ReasoningDelta():
                self._status.alive()
                self._think(event.text)
            case ReasoningReplaced():
                if self._may_think:
                    self._thoughts.replaced(event.text)
            case StepDone():
                self._status.step_done()
                self._thoughts.step_done()
            case ToolStarted():
                label = event.label or event.tool
                now = self._clock.monotonic()
                self._status.tool_started(event.call_id, event.emoji, label, now)
            case ToolFinished():
                self._status.tool_finished(event.call_id, ok=event.ok)
        self.refresh()

    def notice(self, notice: Notice) -> str:
        """Let the status line say it; gives the words."""
        words = self._status.notice(notice.id, self._named(notice))
        self.refresh()
        return words

    def _named(self, notice: Notice) -> dict[str, str | int]:
        """Name models as everywhere else in a chat."""
        if notice.id != "N5":
            return notice.fields
        return {key: self._models.get(str(value), value) for key, value in notice.fields.items()}

    def refresh(self) -> None:
        """Show how it stands at this moment."""
        status, tasks = self._status.words(self._clock.monotonic()), self._status.tasks
        # A line that is over stays until something else is to be shown.
        if status or tasks or self._clears or self._has_said:
            self._live.follow(self.whole, status, tasks)

    def pass_time(self) -> None:
        """Let it be seen how long a tool has been running."""
        if self._status.tools_running:
            self.refresh()

    @property
    def waits(self) -> bool:
        """Whether nothing goes on before somebody has answered a question."""
        return self._status.waits

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Say meanwhile that somebody is asked."""
        with self._status.asking():
            self.refresh()
            yield

    def fetching(self, names: str) -> contextlib.AbstractContextManager[None]:
        """Say meanwhile that files are on their way, once it is refreshed."""
        return self._status.fetching(names)

    # --- thoughts -------------------------------------------------------------------------------

    @property
    def _may_think(self) -> bool:
        """Whether thoughts do not come to stand behind what they led to."""
        return not (self.streams and self._has_said)

    def _think(self, text: str) -> None:
        if self._may_think:
            self._thoughts.said(text)
        if self._thinking and not self.streams:
            self._thinking.follow(self._thoughts.newest)

    def _show_thoughts(self) -> None:
        """Where nothing can be changed later, they are shown once: before the first words."""
        if self._thinking and not self._has_said:
            self._thinking.follow(self._thoughts.text)

    # --- the end --------------------------------------------------------------------------------

    def close(self, text: str) -> tuple[Change, ...]:
        """The answer as it stands in the chat from now on."""
        self._live.close()
        shown: list[Change] = list(self._close_thoughts())
        if text:
            shown.append(PutItem(self._item(text, final=True)))
        else:
            self._live.drop()
        return tuple(shown)

    def _close_thoughts(self) -> Iterable[Change]:
        if self._thinking is None:
            return
        self._thinking.close()
        if self._thoughts.text():
            yield PutItem(self._reasoning(final=True))
        else:
            self._thinking.drop()

    def _item(self, text: str, *, final: bool) -> Item:
        item = answer_item(self._turn, text, self._clock.now(), self.reply_to)
        return msgspec.structs.replace(item, final=final)

    def _reasoning(self, *, final: bool) -> Item:
        item = reasoning_item(self._turn, self._thoughts.text(), self._clock.now())
        return msgspec.structs.replace(item, final=final)
