"""Finds out whether a model can be used: reached, allowed, there, streaming, calling tools.

It asks as a turn would, through the same provider, only much less; the answers cost a few tokens.
"""

import asyncio
import difflib
from collections.abc import Sequence

import msgspec

from agent.answer.accumulate import Accumulator, Finish, StepResult
from agent.answer.call_slots import Shape
from agent.errors import (
    BadRequest,
    Cut,
    OutOfCredit,
    Overloaded,
    ProviderError,
    RateLimited,
    Stalled,
    Unauthorized,
)
from agent.model.contract import ModelRequest, Provider, ToolSchema
from agent.providers.registry import (
    ListsModels,
    ModelNotChosen,
    UnknownProvider,
    build,
)
from agent.settings import SERVICES, TargetSettings
from sessions.records import Message
from sessions.values.clock import Clock
from sessions.values.finding import Finding, fail, ok, warn
from sessions.values.unreached import why_unreached

LIST_SECONDS, ANSWER_SECONDS, CALL_SECONDS = 6.0, 10.0, 8.0
"""Until the service must have listed its models, answered, and called a tool."""

_MOST_LISTED = 12
_MOST_TOKENS = 400  # room for a model that thinks before its one word

_WORD = ToolSchema(
    "report_word",
    "Reports a word to the person who looks whether tools work.",
    {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "The word."}},
        "required": ["word"],
        "additionalProperties": False,
    },
)
_SAY = "Answer with the one word: ready"
_CALL = 'Call the tool report_word with the word "ready". Do not answer in words.'
_SYSTEM = "This is a test of the connection. Be as short as can be."


class Patience(msgspec.Struct, frozen=True):
    """How long each question may take, in seconds."""

    list: float = LIST_SECONDS
    answer: float = ANSWER_SECONDS
    call: float = CALL_SECONDS


class ProbedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found out about one model."""

    label: str  # provider and name
    name: str | None = None  # the one that would answer; None where none is settled
    offered: tuple[str, ...] = ()  # which the service lists
    findings: tuple[Finding, ...] = ()

    @property
    def works(self) -> bool:
        """Whether nothing speaks against it."""
        return all(finding.level != "fail" for finding in self.findings)


async def probe_model(
    settings: TargetSettings,
    *,
    clock: Clock,
    answers: bool = True,
    patience: Patience | None = None,
) -> ProbedModel:
    """Ask; `answers` also has it answer once in words and once by a tool call."""
    if settings.provider == "demo":
        found = ok("model", "the built-in demo answers; it needs no service")
        return ProbedModel("demo", "demo", findings=(found,))
    label = f"{settings.provider}/{settings.name or 'a model'}"
    try:
        provider = build(settings)
    except UnknownProvider as error:
        found = fail("service", str(error), "Correct model.provider.")
        return ProbedModel(label, findings=(found,))
    except ModuleNotFoundError as error:
        found = fail(
            "service",
            f"{settings.provider} needs {error.name}, which is not installed",
            f"Install holdfast[{settings.provider}].",
        )
        return ProbedModel(label, findings=(found,))
    try:
        return await _Probing(provider, settings, clock, patience or Patience()).run(
            answers=answers
        )
    finally:
        await provider.aclose()


class _Probing:
    """One run through all questions; a failure ends it where the next would tell nothing new."""

    def __init__(
        self, provider: Provider, settings: TargetSettings, clock: Clock, patience: Patience
    ) -> None:
        self._provider = provider
        self._settings = settings
        self._clock = clock
        self._patience = patience
        self._where = settings.base_url or f"the usual address of {provider.name}"
        self._key = "model.api_key"
        if service := SERVICES.get(settings.provider):
            self._key = " or ".join(filter(None, (self._key, service.key_variable)))
        self._findings: list[Finding] = []
        self._offered: tuple[str, ...] = ()

    async def run(self, *, answers: bool) -> ProbedModel:
        name = None
        if await self._list():
            name = self._name()
            if name and answers and await self._answer(name):
                await self._call(name)
        label = f"{self._provider.name}/{name or self._settings.name or 'a model'}"
        return ProbedModel(label, name, self._offered, tuple(self._findings))

    async def _list(self) -> bool:
        """Ask for the models; tells whether the service can be asked more."""
        if not isinstance(self._provider, ListsModels):
            return True
        since = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._patience.list):
                self._offered = await self._provider.list_models()
        except BadRequest as error:  # reached, and without such a list: an answer will tell
            self._found(ok("service", f"reached; it gives no list of its models ({error})"))
            return True
        except (ProviderError, TimeoutError) as error:
            self._found(self._trouble("service", error, self._patience.list))
            return False
        self._found(ok("service", f"reached ({self._where})", seconds=self._since(since)))
        if self._settings.api_key:
            self._found(ok("key", "accepted"))
        return True

    def _name(self) -> str | None:
        """Settle which model is meant, and look whether it is listed."""
        settings, service = self._settings, SERVICES.get(self._settings.provider)
        name = settings.name
        if name is None and settings.base_url is None and service is not None:
            name = service.model
        if name is None and len(self._offered) == 1:
            name = self._offered[0]
        if name is None:
            offered = ModelNotChosen(self._offered)
            self._found(fail("model", "no model is named", str(offered)))
            return None
        if not self._offered or name in self._offered:
            if self._offered:
                self._found(ok("model", f"{name} is listed"))
            return name
        near = difflib.get_close_matches(name, self._offered, 3, 0.5)
        others = (each for each in self._offered if each not in near)
        self._found(
            warn(
                "model",
                f"{name} is not among the {len(self._offered)} models that the service lists",
                f"Set model.name to one of: {_shortened((*near, *others))}.",
            )
        )
        return name

    async def _answer(self, name: str) -> bool:
        """Have it answer in words; tells whether it did."""
        request = self._request(name, _SAY)
        since = self._clock.monotonic()
        try:
            step = await self._asked(request, self._patience.answer)
        except (ProviderError, TimeoutError) as error:
            self._found(self._trouble("answer", error, self._patience.answer))
            return False
        seconds = self._since(since)
        if step.text.strip() or step.reasoning:
            how = "answers in one piece: it does not stream" if step.whole else "streams"
            self._found(ok("answer", f"{how}{_cost(step)}", seconds=seconds))
            return True
        refused = step.finish is Finish.REFUSED
        self._found(
            fail(
                "answer",
                "the model declined to answer" if refused else "the answer was empty",
                "Try another model: set model.name.",
                seconds=seconds,
            )
        )
        return False

    async def _call(self, name: str) -> None:
        """Have it call a tool."""
        request = self._request(name, _CALL, (_WORD,))
        since = self._clock.monotonic()
        cannot = warn(
            "tool call",
            "the model answers, but does not call tools",
            "Choose a model that can call tools, or set tools.enabled = [].",
        )
        try:
            step = await self._asked(request, self._patience.call)
        except BadRequest as error:
            text = f"{cannot.text} ({error})"
            self._found(msgspec.structs.replace(cannot, text=text))
        except (ProviderError, TimeoutError) as error:
            self._found(self._trouble("tool call", error, self._patience.call))
        else:
            seconds = self._since(since)
            called = [call for call in step.calls if call.name == _WORD.name]
            if called and called[0].shape is Shape.WHOLE:
                self._found(ok("tool call", f"calls tools{_cost(step)}", seconds=seconds))
            elif called:
                text = "the model calls tools, but with arguments that are not whole JSON"
                self._found(msgspec.structs.replace(cannot, text=text, seconds=seconds))
            else:
                self._found(msgspec.structs.replace(cannot, seconds=seconds))

    async def _asked(self, request: ModelRequest, seconds: float) -> StepResult:
        accumulator = Accumulator(request.tools, "probe")
        async with asyncio.timeout(seconds), self._provider.stream(request) as chunks:
            async for chunk in chunks:
                accumulator.feed(chunk)
        accumulator.close()
        step = accumulator.result()
        if not step.ended and not step.received:
            msg = "the connection ended without an answer"
            raise Cut(msg)
        return step

    def _request(self, name: str, words: str, tools: tuple[ToolSchema, ...] = ()) -> ModelRequest:
        settings = self._settings
        return ModelRequest(
            name,
            _SYSTEM,
            (Message("user", words),),
            tools,
            max_output_tokens=min(settings.max_output_tokens or _MOST_TOKENS, _MOST_TOKENS),
            temperature=settings.temperature,
            reasoning_effort=settings.reasoning_effort,
        )

    def _trouble(self, subject: str, error: ProviderError | TimeoutError, within: float) -> Finding:
        """Say what went wrong, and what to do about it."""
        reason = why_unreached(error) if isinstance(error, (Overloaded, Cut, Stalled)) else ""
        match error:
            case TimeoutError():
                return fail(
                    subject,
                    f"no answer within {within:g} s",
                    "Run this again in a minute: a model that is being loaded takes its time; if it "
                    f"stays so, look at the service ({self._where}).",
                )
            case Unauthorized():
                return fail(
                    "key",
                    f"the service does not accept it: {error}",
                    f"Put a key that works into {self._key}.",
                )
            case OutOfCredit():
                return fail(
                    subject,
                    f"the account is empty: {error}",
                    "Pay at the service, or configure [[model.fallback]].",
                )
            case RateLimited():
                return warn(
                    subject,
                    f"the service asks us to slow down: {error}",
                    "Run this again in a minute; it is reached and lets us in.",
                )
            case _ if reason:
                return fail(
                    subject,
                    f"{self._where} cannot be reached: {reason}",
                    "Correct model.base_url, start that service, or see to the network.",
                )
            case BadRequest():
                return fail(
                    subject,
                    f"the service refused the request: {error}",
                    "Correct [model]: its name, and what is set beside it.",
                )
            case _:
                return fail(
                    subject,
                    f"the service has failed: {error}",
                    f"Look at the service ({self._where}), or configure [[model.fallback]].",
                )

    def _since(self, began: float) -> float:
        return round(self._clock.monotonic() - began, 3)

    def _found(self, finding: Finding) -> None:
        self._findings.append(finding)


def _cost(step: StepResult) -> str:
    if step.usage is None:
        return ""
    return f" ({step.usage.input_tokens + step.usage.output_tokens} tokens)"


def _shortened(names: Sequence[str]) -> str:
    left = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {left} more" if left > 0 else "")
