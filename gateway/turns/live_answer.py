"""The answer of a running turn in its chat: text, status line and reasoning."""

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
    ToolProgress,
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
from sessions.values.notices import NoticeFields, NoticeId


class LiveAnswer:
    """Live items of one answer, updated with every event; `StoredTurnJournal` stores the text."""

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
        self.reply_to = turn.reply_to  # the newest message that the answer replies to
        self._turn = turn
        self._clock = clock
        self._model_names = model_names  # short names for chats, by label
        self._steps: list[str] = []  # visible text of finished steps
        self._step_pieces: list[str] = []  # text of the present step
        self._is_growing = False  # the model is writing text
        self._status = StatusLine(
            command_template(capabilities),
            tasks_separate=capabilities is not None and capabilities.tasks,
        )
        self.is_append_only = capabilities is not None and capabilities.live is Live.STREAM
        """True if the platform streams text and cannot edit shown text."""
        self._can_clear_status = capabilities is not None and capabilities.status
        self._reasoning_view = ReasoningView(delivery.redact)
        self._reasoning_live: LiveItem | None = None
        if show_reasoning:  # first, because the reasoning stands above the answer
            self._reasoning_live = delivery.start_live(self._make_reasoning_item(final=False))
        self._answer_live: LiveItem = delivery.start_live(self._make_item("", final=False))

    # --- text -----------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Visible text of the present step; joined on first access, because deltas are frequent."""
        if len(self._step_pieces) > 1:
            self._step_pieces = ["".join(self._step_pieces)]
        return self._step_pieces[0] if self._step_pieces else ""

    @text.setter
    def text(self, text: str) -> None:
        self._step_pieces = [text] if text else []

    def full_text(self) -> str:
        """Return the text of all steps as the chat shows it."""
        if not self._steps:
            return self.text
        return join_step_texts((*self._steps, self.text))

    @property
    def _has_text(self) -> bool:
        return bool(self._step_pieces) or any(self._steps)

    def set_reply_to(self, message: str) -> None:
        """Reply to a newer message from now on; an empty id changes nothing."""
        self.reply_to = message or self.reply_to

    def restore(self, steps: Iterable[str], text: str) -> None:
        """Start from the text that an earlier process showed."""
        self._steps = list(steps)
        self.text = text

    def on_step_stored(self) -> None:
        """Move the text of the present step to the finished steps; the history holds it now."""
        if self.text:
            self._steps.append(self.text)
            self.text = ""

    def on_step_not_stored(self, text: str) -> None:
        """Undo `on_step_stored` for the text of the step, because the write failed."""
        if text:
            self._steps.pop()
            self.text = text

    # --- updates --------------------------------------------------------------------------------

    def on_event(self, event: AnswerEvent) -> None:
        """Apply an event of the agent and refresh the chat."""
        match event:
            case TextDelta():
                if self.is_append_only:
                    self._show_reasoning()
                self._step_pieces.append(event.text)
                self._is_growing = True
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
                self._is_growing = False
                self._status.step_done()
                self._reasoning_view.step_done()
            case ToolStarted():
                label = event.label or event.tool
                now = self._clock.monotonic()
                self._status.tool_started(event.call_id, event.emoji, label, now)
            case ToolFinished():
                self._status.tool_finished(event.call_id, ok=event.ok)
        self.refresh()

    def show_progress(self, progress: ToolProgress) -> None:
        """Show the progress of a running tool in the status line."""
        self._status.tool_progressed(progress.call_id, progress.text)
        self.refresh()

    def show_notice(self, notice: Notice) -> str:
        """Show a notice in the status line and return its text."""
        text = self._status.show_notice(notice.id, self._with_model_names(notice))
        self.refresh()
        return text

    def _with_model_names(self, notice: Notice) -> NoticeFields:
        """Replace model labels by the short names that chats use."""
        if notice.id != NoticeId.MODEL_SWITCHED:
            return notice.fields
        return {
            key: self._model_names.get(str(value), value) for key, value in notice.fields.items()
        }

    def refresh(self) -> None:
        """Pass the present text, status line and tasks to delivery."""
        status, tasks = self._status.text(self._clock.monotonic()), self._status.tasks
        # Where a status cannot be cleared, an outdated line stays until text replaces it.
        if status or tasks or self._can_clear_status or self._has_text:
            self._answer_live.follow(self.full_text, status, tasks, growing=self._is_growing)

    def tick(self) -> None:
        """Refresh the elapsed time of a running tool."""
        if self._status.has_running_tools:
            self.refresh()

    @property
    def is_waiting(self) -> bool:
        """True if the turn can only go on once a person has answered an approval request."""
        return self._status.is_waiting

    @contextlib.contextmanager
    def waiting_for_answer(self) -> Iterator[None]:
        """Show in the status line that an approval request is open, within the block."""
        with self._status.awaiting_approval():
            self.refresh()
            yield

    def fetching(self, names: str) -> contextlib.AbstractContextManager[None]:
        """Name the files that are being fetched in the status line, within the block.

        The caller refreshes the line, because most files arrive before people need to know.
        """
        return self._status.fetching(names)

    # --- reasoning ------------------------------------------------------------------------------

    @property
    def _can_show_reasoning(self) -> bool:
        """False once text is shown that cannot be edited: reasoning would appear below the text."""
        return not (self.is_append_only and self._has_text)

    def _add_reasoning(self, text: str) -> None:
        if self._can_show_reasoning:
            self._reasoning_view.append(text)
        if self._reasoning_live and not self.is_append_only:
            self._reasoning_live.follow(self._reasoning_view.latest_text)

    def _show_reasoning(self) -> None:
        """Show the whole reasoning once, before the first text, on a platform without edits."""
        if self._reasoning_live and not self._has_text:
            self._reasoning_live.follow(self._reasoning_view.text)

    # --- the end --------------------------------------------------------------------------------

    def close(self, text: str) -> tuple[Change, ...]:
        """Close the live items and return the changes that store their final form."""
        self._answer_live.close()
        changes: list[Change] = list(self._close_reasoning())
        if text:
            changes.append(PutItem(self._make_item(text, final=True)))
        else:
            self._answer_live.drop()
        return tuple(changes)

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
