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
from gateway.notices.compose import command_template
from gateway.turns.answer import answer_item, join_step_texts, reasoning_item
from gateway.turns.status_line import StatusLine
from gateway.turns.thinking import ReasoningView
from platforms.core.contract import Capabilities, Live
from sessions.changes import Change, PutItem
from sessions.conversation.events import RunningTurn
from sessions.records import OutboxItem
from sessions.values.clock import Clock
from sessions.values.notices import NoticeId


class LiveAnswer:
    """Shows what was said so far; what becomes of it in the store is the turn's business."""

    def __init__(
        self,
        turn: RunningTurn,
        delivery: Delivery,
        capabilities: Capabilities | None,
        clock: Clock,
        *,
        model_names: Mapping[str, str],
        show_reasoning: bool,
    ) -> None:
        self.reply_to = turn.reply_to  # of what was asked last
        self._turn = turn
        self._clock = clock
        self._model_names = model_names  # as they are named in a chat, by label
        self._steps: list[str] = []  # the visible text of steps that are over
        self._step_pieces: list[str] = []  # the text of the present step
        self._status = StatusLine(
            command_template(capabilities),
            tasks_separate=capabilities is not None and capabilities.tasks,
        )
        self.is_append_only = capabilities is not None and capabilities.live is Live.STREAM
        """Whether what was shown can no longer be changed."""
        self._can_clear_status = (
            capabilities is not None and capabilities.status
        )  # a status can be taken away
        self._reasoning_view = ReasoningView()
        self._reasoning_live: LiveItem | None = None
        if show_reasoning:  # it stands before the answer, so it is entered first
            self._reasoning_live = delivery.start_live(self._make_reasoning_item(final=False))
        self._answer_live: LiveItem = delivery.start_live(self._make_item("", final=False))

    # --- what was said --------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Of the present step; put together only when somebody wants to see it."""
        if len(self._step_pieces) > 1:
            self._step_pieces = ["".join(self._step_pieces)]
        return self._step_pieces[0] if self._step_pieces else ""

    @text.setter
    def text(self, text: str) -> None:
        self._step_pieces = [text] if text else []

    def full_text(self) -> str:
        """Give the text of all steps, as the chat shows it."""
        if not self._steps:
            return self.text
        return join_step_texts((*self._steps, self.text))

    @property
    def _has_text(self) -> bool:
        return bool(self._step_pieces) or any(self._steps)

    def restore(self, steps: Iterable[str], text: str) -> None:
        """An earlier process said this already."""
        self._steps = list(steps)
        self.text = text

    def on_step_stored(self) -> None:
        """From here on the history holds the text of the present step."""
        if self.text:
            self._steps.append(self.text)
            self.text = ""

    # --- while it grows -------------------------------------------------------------------------

    def on_event(self, event: AnswerEvent) -> None:
        """Let the chat see what the agent told."""
        match event:
            case TextDelta():
                if self.is_append_only:
                    self._show_reasoning()
                self._step_pieces.append(event.text)
                self._status.output_received()
            case TextReplaced():
                self.text = event.text
            case ReasoningDelta():
                self._status.output_received()
                self._add_reasoning(event.text)
            case ReasoningReplaced():
                if self._can_show_reasoning:
                    self._reasoning_view.replace_current(event.text)
            case StepDone():
                self._status.step_done()
                self._reasoning_view.step_done()
            case ToolStarted():
                label = event.label or event.tool
                now = self._clock.monotonic()
                self._status.tool_started(event.call_id, event.emoji, label, now)
            case ToolFinished():
                self._status.tool_finished(event.call_id, ok=event.ok)
        self.refresh()

    def show_notice(self, notice: Notice) -> str:
        """Let the status line say it; gives the words."""
        words = self._status.show_notice(notice.id, self._with_model_names(notice))
        self.refresh()
        return words

    def _with_model_names(self, notice: Notice) -> dict[str, str | int]:
        """Name models as everywhere else in a chat."""
        if notice.id != NoticeId.MODEL_SWITCHED:
            return notice.fields
        return {
            key: self._model_names.get(str(value), value) for key, value in notice.fields.items()
        }

    def refresh(self) -> None:
        """Show how it stands at this moment."""
        status, tasks = self._status.text(self._clock.monotonic()), self._status.tasks
        # A line that is over stays until something else is to be shown.
        if status or tasks or self._can_clear_status or self._has_text:
            self._answer_live.follow(self.full_text, status, tasks)

    def tick(self) -> None:
        """Let it be seen how long a tool has been running."""
        if self._status.has_running_tools:
            self.refresh()

    @property
    def is_waiting(self) -> bool:
        """Whether nothing goes on before somebody has answered a question."""
        return self._status.is_waiting

    @contextlib.contextmanager
    def waiting_for_answer(self) -> Iterator[None]:
        """Say meanwhile that somebody is asked."""
        with self._status.awaiting_approval():
            self.refresh()
            yield

    def fetching(self, names: str) -> contextlib.AbstractContextManager[None]:
        """Say meanwhile that files are on their way, once it is refreshed."""
        return self._status.fetching(names)

    # --- thoughts -------------------------------------------------------------------------------

    @property
    def _can_show_reasoning(self) -> bool:
        """Whether thoughts do not come to stand behind what they led to."""
        return not (self.is_append_only and self._has_text)

    def _add_reasoning(self, text: str) -> None:
        if self._can_show_reasoning:
            self._reasoning_view.append(text)
        if self._reasoning_live and not self.is_append_only:
            self._reasoning_live.follow(self._reasoning_view.latest_text)

    def _show_reasoning(self) -> None:
        """Where nothing can be changed later, they are shown once: before the first words."""
        if self._reasoning_live and not self._has_text:
            self._reasoning_live.follow(self._reasoning_view.text)

    # --- the end --------------------------------------------------------------------------------

    def close(self, text: str) -> tuple[Change, ...]:
        """The answer as it stands in the chat from now on."""
        self._answer_live.close()
        shown: list[Change] = list(self._close_reasoning())
        if text:
            shown.append(PutItem(self._make_item(text, final=True)))
        else:
            self._answer_live.drop()
        return tuple(shown)

    def _close_reasoning(self) -> Iterable[Change]:
        if self._reasoning_live is None:
            return
        self._reasoning_live.close()
        if self._reasoning_view.text():
            yield PutItem(self._make_reasoning_item(final=True))
        else:
            self._reasoning_live.drop()

    def _make_item(self, text: str, *, final: bool) -> OutboxItem:
        item = answer_item(self._turn, text, self._clock.now(), self.reply_to)
        return msgspec.structs.replace(item, final=final)

    def _make_reasoning_item(self, *, final: bool) -> OutboxItem:
        item = reasoning_item(self._turn, self._reasoning_view.text(), self._clock.now())
        return msgspec.structs.replace(item, final=final)
