"""One step of a turn: the text it shows, and the request-only messages that carry it on.

It knows what was shown and how the next request must ask for the rest; it decides nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from agent.answer.empty_promise import only_announces
from agent.answer.seam import Joint, Seam
from agent.attempt import AttemptResult
from agent.continuation import Again, AskSmaller, Kind, Seen
from agent.errors import Looping
from agent.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    ReasoningReplaced,
    TextDelta,
    TextReplaced,
)
from agent.model.contract import ToolSchema
from agent.request.prompt import (
    ACT,
    NUDGE,
    REPEATING,
    Lost,
    Report,
    carried_on,
    draft_note,
    lost_calls,
)
from agent.salvage import Salvage
from agent.tools.contract import Tool
from agent.tools.drafts import Draft
from agent.verdict import Cut
from sessions.records import Message
from sessions.values.clock import Clock

_HARD_LIMIT = 6000  # characters of a parameter whose calls keep being cut off
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


class Step:
    """What one model answer has come to so far, over all requests that it took."""

    def __init__(
        self,
        schemas: tuple[ToolSchema, ...],
        more: tuple[Message, ...],
        *,
        text: str,
        report: Report | None,
        form: AskSmaller | None,
        cap: int | None = None,
        emit: Callable[[AgentEvent], None],
        clock: Clock,
        may_replace: bool,
    ) -> None:
        self._pieces = [text]
        self.cap = cap
        self.unstreamed = False
        self.failures = 0
        self._schemas = schemas
        self._more = more
        self._report = report
        self._form = form
        self._emit = emit
        self._clock = clock
        self._may_replace = may_replace
        self._kind = Kind.NETWORK
        self._nudge = False
        self._looped = False
        self._urged_at = -1  # characters of the text that announced what did not follow
        self._lowered = 0  # steps of effort
        self._seam = Seam("")
        self._before = ""  # the text when the present request was sent
        self._prefilled = False
        self._blanks = ""  # left off the prefilled text; the model may write them again
        self._reasoned = False
        self._alive_at = clock.monotonic()  # when something last came
        self._news: asyncio.TimerHandle | None = None

    @property
    def text(self) -> str:
        """What is shown; put together only when somebody asks."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @text.setter
    def text(self, text: str) -> None:
        self._pieces = [text]

    # --- the request ---------------------------------------------------------------------------

    def asks(self, *, prefill: bool = False) -> tuple[Message, ...]:
        """Messages of this request only, behind the history.

        With `prefill` the model goes on from an assistant's text at the end by itself: then there
        is nothing to explain and no seam to find.
        """
        plain = not (self._report or self._looped or self._nudge or self._urging)
        self._prefilled = prefill and plain and bool(self.text.strip())
        if self._prefilled:
            bare = self.text.rstrip()  # services refuse blanks at the end
            self._blanks = self.text[len(bare) :]
            return (Message("assistant", bare), *self._more)
        text = self.text if self.text.strip() else ""
        told = lost_calls(self._report) if self._report else ""
        if self._looped:
            told = _joined(REPEATING, told)
        asks: list[Message] = []
        if text and self._urging:
            asks += (Message("assistant", text), Message("user", _joined(ACT, told)))
        elif text:
            asks += carried_on(text, self._kind, told)
        elif told:
            asks.append(Message("user", told))
        if self._nudge:
            asks.append(NUDGE)
        return (*asks, *self._more)

    def tools(self, tools: Mapping[str, Tool]) -> tuple[ToolSchema, ...]:
        """The tools that are offered, in the form that the last losses call for."""
        form = self._form
        if form is None:
            return self._schemas
        offered = (each for each in self._schemas if each.name != form.withhold)
        if not form.hard or self._report is None:
            return tuple(offered)
        lost = {each.tool for each in self._report.lost}
        return tuple(
            _limited(each, tools[each.name].grows) if each.name in lost else each
            for each in offered
        )

    def effort(self, configured: str | None) -> str | None:
        """How long the model may think: less after it thought to no end."""
        if not self._lowered:
            return configured
        start = _EFFORTS.index(configured) if configured in _EFFORTS else _EFFORTS.index("medium")
        return _EFFORTS[max(0, start - self._lowered)]

    @property
    def _urging(self) -> bool:
        """The model was asked to do what it announced, and has said nothing since."""
        return len(self.text) == self._urged_at

    # --- while the answer comes ----------------------------------------------------------------

    def begin(self) -> None:
        """A request is about to be sent."""
        self._before = self.text
        self._seam = Seam(self.text, may_replace=self._may_replace, apart=self._urging)
        if self._reasoned:
            self._emit(ReasoningReplaced())
            self._reasoned = False

    def show(self, delta: TextDelta | ReasoningDelta) -> None:
        """More of the answer came."""
        self.quiet()
        self._alive_at = self._clock.monotonic()
        if isinstance(delta, ReasoningDelta):
            self._reasoned = True
            self._emit(delta)
        elif self._prefilled:
            self._join(Joint(self._without_blanks(delta.text)))
        elif self._before:
            self._join(self._seam.feed(delta.text))
        else:
            self._pieces.append(delta.text)
            self._emit(delta)

    def _without_blanks(self, text: str) -> str:
        """Leave out the blanks that stand at the end of the shown text already."""
        while text and self._blanks.startswith(text[0]):
            text, self._blanks = text[1:], self._blanks[1:]
        if text:
            self._blanks = ""
        return text

    def end(self, result: AttemptResult) -> None:
        """The answer is over, whole or not."""
        if self._before and not self._prefilled:
            self._join(self._seam.close(cut=isinstance(result.verdict, Cut)))
        if isinstance(result.error, Looping):
            self._unloop(result.step.text)

    def _join(self, joint: Joint) -> None:
        if joint.replaces:
            self._replace(joint.text)
        elif joint.text:
            self.text += joint.text
            self._emit(TextDelta(joint.text))

    def _unloop(self, text: str) -> None:
        """Take back what was repeated without end."""
        self._looped = True
        apart = len(self._before) == self._urged_at
        seam = Seam(self._before, may_replace=self._may_replace, apart=apart)
        kept = self._before
        for joint in (seam.feed(text), seam.close()):
            kept = joint.text if joint.replaces else kept + joint.text
        if kept != self.text:
            self._replace(kept)

    def _replace(self, text: str) -> None:
        self.text = text
        self._emit(TextReplaced(text))

    # --- what it came to -----------------------------------------------------------------------

    def seen(
        self,
        result: AttemptResult,
        salvage: Salvage,
        *,
        drafted: int,
        after_tools: bool,
        others: bool,
        announces: bool = False,
    ) -> Seen:
        """Sum up the request that just ended; `announces`: see `agent.model.known_models`."""
        step = result.step
        could_act = announces and bool(self._schemas) and not step.calls
        return Seen(
            verdict=result.verdict,
            grown=max(0, len(self.text) - len(self._before)),
            repeated=self._seam.ended_alike and self.text == self._before,
            unheard=self._seam.unheard,
            shown=bool(self.text.strip()),
            ready=len(salvage.ready),
            lost=tuple(call.name for call in salvage.lost),
            lost_size=sum(len(call.arguments) for call in salvage.lost),
            unsealed=tuple(call.name for call in salvage.unsealed),
            drafted=drafted,
            thought=bool(step.reasoning),
            said=bool(step.text.strip()),
            announced=could_act and only_announces(self.text),
            after_tools=after_tools,
            others=others,
        )

    # --- the next request ----------------------------------------------------------------------

    def ask_again(self, action: Again, raised_cap: int, lowered_cap: int) -> None:
        """The same once more; text that is shown is carried on."""
        self._kind = action.kind
        if action.raise_cap:
            self.cap = raised_cap
        elif action.lower_cap is not None:
            self.cap = action.lower_cap or lowered_cap
        self._lowered += action.lower_effort
        self.unstreamed = self.unstreamed or action.unstreamed
        self._nudge = action.nudge

    def ask_smaller(self, action: AskSmaller, report: Report, raised_cap: int) -> None:
        """Calls were cut off: ask for them in smaller parts."""
        self._report, self._form = report, action
        self._kind = Kind.CALLS
        self._nudge = False
        if action.raise_cap:
            self.cap = raised_cap

    def reissue(self, report: Report) -> None:
        """Calls came whole, but may not run: ask for them again."""
        self._report = report
        self._kind = Kind.CALLS
        self._nudge = False

    def urge(self) -> None:
        """The text announces what was not done."""
        self._urged_at = len(self.text)
        self._nudge = False

    def other_target(self) -> None:
        """Limits of the target before do not hold for the next one."""
        self.cap = None
        self._lowered = 0
        self.unstreamed = False
        self.failures = 0

    @staticmethod
    def report(
        salvage: Salvage,
        drafts: Sequence[Draft | None],
        form: AskSmaller | None,
        *,
        done: Iterable[str] = (),
        unfinished: Iterable[Draft] = (),
    ) -> Report:
        """Write down what the model is to know about calls that did not run."""
        lost = tuple(
            Lost(call.name, len(call.arguments.encode()), _note(draft) if draft else "")
            for call, draft in zip(salvage.lost, drafts, strict=True)
        )
        unsealed = salvage.unsealed
        if form and not lost:  # to ask for the very same once more has not helped
            lost = tuple(Lost(call.name, len(call.arguments.encode())) for call in unsealed)
            unsealed = ()
        told = {draft.id for draft in drafts if draft}
        return Report(
            lost,
            tuple(call.name for call in unsealed),
            tuple(done),
            form.limit if form else 8,
            form.withhold if form else "",
            tuple(_note(draft) for draft in unfinished if draft.id not in told),
        )

    # --- news ----------------------------------------------------------------------------------

    def tell_later(self, notice: Notice, wait: float, after: float) -> None:
        """Tell of a recovery unless something comes before it has taken `after` seconds."""
        self.quiet()
        spent = self._clock.monotonic() - self._alive_at
        if spent + wait > after:
            self._emit(notice)
        else:
            loop = asyncio.get_running_loop()
            self._news = loop.call_later(after - spent, self._emit, notice)

    def quiet(self) -> None:
        """Something came, or the step is over: no news needed."""
        if self._news:
            self._news.cancel()
            self._news = None


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _note(draft: Draft) -> str:
    return draft_note(draft.id, draft.path, draft.size, draft.lines, draft.tail)


def _limited(schema: ToolSchema, parameter: str) -> ToolSchema:
    """Do not let a parameter become long."""
    properties: dict[str, Any] = schema.parameters.get("properties", {})
    if parameter not in properties:
        return schema
    limited = {**properties, parameter: {**properties[parameter], "maxLength": _HARD_LIMIT}}
    return replace(schema, parameters={**schema.parameters, "properties": limited})
