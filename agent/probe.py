"""Probe of a configured model: service, API key, model name, streaming and tool calls.

The probe uses the same provider as a turn, with minimal requests that cost a few tokens.
"""

import asyncio
import enum
from collections.abc import Sequence

import msgspec

from agent.answer.accumulate import Accumulator, FinishReason, StepResult
from agent.answer.call_slots import ArgumentsState
from agent.errors import (
    ApiKeyRejected,
    BadRequest,
    ConnectionLost,
    OutOfCredit,
    Overloaded,
    ProviderError,
    RateLimited,
    Stalled,
)
from agent.model.contract import ModelRequest, Provider, ToolSchema
from agent.providers.registry import (
    ModelNotChosen,
    SupportsListModels,
    UnknownProvider,
    build_provider,
)
from agent.settings import SERVICES, TargetSettings
from sessions.records import Message, MessageRole
from sessions.values.clock import Clock
from sessions.values.finding import Finding, fail, ok, warn
from sessions.values.spelling import similar_words
from sessions.values.unreached import describe_network_error

LIST_SECONDS, ANSWER_SECONDS, CALL_SECONDS = 6.0, 10.0, 8.0
"""Timeouts for listing models, for an answer and for a tool call."""

_MAX_LISTED = 12
_MAX_OUTPUT_TOKENS = 400  # leaves room for reasoning before a one-word answer

_REPORT_WORD_TOOL = ToolSchema(
    "report_word",
    "Report a word, to test that tool calls work.",
    {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "The word."}},
        "required": ["word"],
        "additionalProperties": False,
    },
)
_ANSWER_PROMPT = "Answer with the one word: ready"
_TOOL_CALL_PROMPT = 'Call the tool report_word with the word "ready". Do not answer in words.'
_SYSTEM_PROMPT = "This is a connection test. Be as brief as possible."


class ProbeTimeouts(msgspec.Struct, frozen=True):
    """Timeout of each check, in seconds."""

    list: float = LIST_SECONDS
    answer: float = ANSWER_SECONDS
    call: float = CALL_SECONDS


class ProbeSubject(enum.StrEnum):
    """Subject of a finding about a model."""

    SERVICE = "service"
    KEY = "key"
    MODEL = "model"
    ANSWER = "answer"
    TOOL_CALL = "tool call"


class ProbedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of probing one model."""

    label: str  # provider and name
    name: str | None = None  # resolved model name; None if undecided
    offered: tuple[str, ...] = ()  # models listed by the service
    findings: tuple[Finding, ...] = ()

    @property
    def works(self) -> bool:
        """True if no check failed."""
        return all(finding.level != "fail" for finding in self.findings)


async def probe_model(
    settings: TargetSettings,
    *,
    clock: Clock,
    request_answers: bool = True,
    timeouts: ProbeTimeouts | None = None,
) -> ProbedModel:
    """Check a model; `request_answers` also requests one text answer and one tool call."""
    if settings.provider == "demo":
        finding = ok(ProbeSubject.MODEL, "the built-in demo model; it needs no service")
        return ProbedModel("demo", "demo", findings=(finding,))
    label = f"{settings.provider}/{settings.name or 'a model'}"
    try:
        provider = build_provider(settings)
    except UnknownProvider as error:
        finding = fail(ProbeSubject.SERVICE, str(error), "Correct model.provider.")
        return ProbedModel(label, findings=(finding,))
    except ModuleNotFoundError as error:
        finding = fail(
            ProbeSubject.SERVICE,
            f"{settings.provider} needs {error.name}, which is not installed",
            f"Install holdfast[{settings.provider}].",
        )
        return ProbedModel(label, findings=(finding,))
    try:
        return await _ModelProbe(provider, settings, clock, timeouts or ProbeTimeouts()).run(
            request_answers=request_answers
        )
    finally:
        await provider.aclose()


class _ModelProbe:
    """One run of all checks, up to a failure that makes further checks pointless."""

    def __init__(
        self, provider: Provider, settings: TargetSettings, clock: Clock, timeouts: ProbeTimeouts
    ) -> None:
        self._provider = provider
        self._settings = settings
        self._clock = clock
        self._timeouts = timeouts
        self._service_label = settings.base_url or f"the default address of {provider.name}"
        self._key_settings = "model.api_key"
        if service := SERVICES.get(settings.provider):
            self._key_settings = " or ".join(
                filter(None, (self._key_settings, service.key_variable))
            )
        self._findings: list[Finding] = []
        self._listed_models: tuple[str, ...] = ()

    async def run(self, *, request_answers: bool) -> ProbedModel:
        name = None
        if await self._check_listing():
            name = self._check_model_name()
            if name and request_answers and await self._check_answer(name):
                await self._check_tool_call(name)
        label = f"{self._provider.name}/{name or self._settings.name or 'a model'}"
        return ProbedModel(label, name, self._listed_models, tuple(self._findings))

    async def _check_listing(self) -> bool:
        """List the models; return True if further checks make sense."""
        if not isinstance(self._provider, SupportsListModels):
            return True
        since = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._timeouts.list):
                self._listed_models = await self._provider.list_models()
        except BadRequest as error:  # no model list; the answer check decides
            self._add_finding(
                ok(ProbeSubject.SERVICE, f"reached; it does not list its models ({error})")
            )
            return True
        except (ProviderError, TimeoutError) as error:
            self._add_finding(
                self._describe_failure(ProbeSubject.SERVICE, error, self._timeouts.list)
            )
            return False
        self._add_finding(
            ok(
                ProbeSubject.SERVICE,
                f"reached ({self._service_label})",
                seconds=self._elapsed_seconds(since),
            )
        )
        if self._settings.api_key:
            self._add_finding(ok(ProbeSubject.KEY, "accepted"))
        return True

    def _check_model_name(self) -> str | None:
        """Resolve the model name, and check that the service lists it."""
        settings, service = self._settings, SERVICES.get(self._settings.provider)
        name = settings.name
        if name is None and settings.base_url is None and service is not None:
            name = service.model
        if name is None and self._listed_models:
            name = self._listed_models[0]
            if len(self._listed_models) > 1:
                self._add_finding(
                    warn(
                        ProbeSubject.MODEL,
                        f"model.name is not set, so {name} is used: the first of "
                        f"{len(self._listed_models)} models the service lists",
                        f"Set model.name to one of: {_join_names(self._listed_models)}.",
                    )
                )
                return name
        if name is None:
            advice = str(ModelNotChosen())
            self._add_finding(fail(ProbeSubject.MODEL, "no model is configured", advice))
            return None
        if not self._listed_models or name in self._listed_models:
            if self._listed_models:
                self._add_finding(ok(ProbeSubject.MODEL, f"{name} is listed"))
            return name
        near = similar_words(name, self._listed_models, most=3, min_similarity=0.5)
        others = (model for model in self._listed_models if model not in near)
        self._add_finding(
            warn(
                ProbeSubject.MODEL,
                f"{name} is not one of the {len(self._listed_models)} models the service lists",
                f"Set model.name to one of: {_join_names((*near, *others))}.",
            )
        )
        return name

    async def _check_answer(self, name: str) -> bool:
        """Request a text answer; return True if the model gave one."""
        request = self._build_request(name, _ANSWER_PROMPT)
        since = self._clock.monotonic()
        try:
            step = await self._send_request(request, self._timeouts.answer)
        except (ProviderError, TimeoutError) as error:
            self._add_finding(
                self._describe_failure(ProbeSubject.ANSWER, error, self._timeouts.answer)
            )
            return False
        seconds = self._elapsed_seconds(since)
        if step.text.strip() or step.reasoning:
            mode = "answers in one piece, without streaming" if step.unstreamed else "streams"
            self._add_finding(
                ok(ProbeSubject.ANSWER, f"{mode}{_format_tokens(step)}", seconds=seconds)
            )
            return True
        refused = step.finish_reason is FinishReason.REFUSED
        self._add_finding(
            fail(
                ProbeSubject.ANSWER,
                "the model declined to answer" if refused else "the answer was empty",
                "Try another model: set model.name.",
                seconds=seconds,
            )
        )
        return False

    async def _check_tool_call(self, name: str) -> None:
        """Request a tool call."""
        request = self._build_request(name, _TOOL_CALL_PROMPT, (_REPORT_WORD_TOOL,))
        since = self._clock.monotonic()
        cannot = warn(
            ProbeSubject.TOOL_CALL,
            "the model answers, but does not call tools",
            "Choose a model that can call tools, or set tools.enabled = [].",
        )
        try:
            step = await self._send_request(request, self._timeouts.call)
        except BadRequest as error:
            text = f"{cannot.text} ({error})"
            self._add_finding(msgspec.structs.replace(cannot, text=text))
        except (ProviderError, TimeoutError) as error:
            self._add_finding(
                self._describe_failure(ProbeSubject.TOOL_CALL, error, self._timeouts.call)
            )
        else:
            seconds = self._elapsed_seconds(since)
            called = [call for call in step.calls if call.name == _REPORT_WORD_TOOL.name]
            if called and called[0].arguments_state is ArgumentsState.COMPLETE:
                self._add_finding(
                    ok(
                        ProbeSubject.TOOL_CALL,
                        f"calls tools{_format_tokens(step)}",
                        seconds=seconds,
                    )
                )
            elif called:
                text = "the model calls tools, but with incomplete JSON arguments"
                self._add_finding(msgspec.structs.replace(cannot, text=text, seconds=seconds))
            else:
                self._add_finding(msgspec.structs.replace(cannot, seconds=seconds))

    async def _send_request(self, request: ModelRequest, seconds: float) -> StepResult:
        accumulator = Accumulator(request.tools, "probe")
        async with asyncio.timeout(seconds), self._provider.stream(request) as chunks:
            async for chunk in chunks:
                accumulator.feed(chunk)
        accumulator.close()
        step = accumulator.result()
        if not step.ended and not step.received_characters:
            msg = "the connection ended without an answer"
            raise ConnectionLost(msg)
        return step

    def _build_request(
        self, name: str, prompt: str, tools: tuple[ToolSchema, ...] = ()
    ) -> ModelRequest:
        settings = self._settings
        return ModelRequest(
            name,
            _SYSTEM_PROMPT,
            messages=(Message(MessageRole.USER, prompt),),
            tools=tools,
            max_output_tokens=min(
                settings.max_output_tokens or _MAX_OUTPUT_TOKENS, _MAX_OUTPUT_TOKENS
            ),
            temperature=settings.temperature,
            reasoning_effort=settings.reasoning_effort,
        )

    def _describe_failure(
        self, subject: ProbeSubject, error: ProviderError | TimeoutError, within: float
    ) -> Finding:
        """Return a finding that explains the failure and its fix."""
        reason = (
            describe_network_error(error)
            if isinstance(error, (Overloaded, ConnectionLost, Stalled))
            else ""
        )
        match error:
            case TimeoutError():
                return fail(
                    subject,
                    f"no answer within {within:g} s",
                    "Try again in a minute, because the model may still be loading. If the problem "
                    f"persists, check the service ({self._service_label}).",
                )
            case ApiKeyRejected():
                return fail(
                    ProbeSubject.KEY,
                    f"the service rejected the API key: {error}",
                    f"Set a valid key in {self._key_settings}.",
                )
            case OutOfCredit():
                return fail(
                    subject,
                    f"the account has no credit left: {error}",
                    "Top up the account, or configure [[model.fallback]].",
                )
            case RateLimited():
                return warn(
                    subject,
                    f"the service limits the rate of requests: {error}",
                    "Try again in a minute. The address and the API key are correct.",
                )
            case _ if reason:
                return fail(
                    subject,
                    f"{self._service_label} cannot be reached: {reason}",
                    "Correct model.base_url, start the service, or check the network.",
                )
            case BadRequest():
                return fail(
                    subject,
                    f"the service refused the request: {error}",
                    "Correct the name and the other settings in [model].",
                )
            case _:
                return fail(
                    subject,
                    f"the service failed: {error}",
                    f"Check the service ({self._service_label}), or configure [[model.fallback]].",
                )

    def _elapsed_seconds(self, since: float) -> float:
        return round(self._clock.monotonic() - since, 3)

    def _add_finding(self, finding: Finding) -> None:
        self._findings.append(finding)


def _format_tokens(step: StepResult) -> str:
    if step.usage is None:
        return ""
    return f" ({step.usage.input_tokens + step.usage.output_tokens} tokens)"


def _join_names(names: Sequence[str]) -> str:
    left = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {left} more" if left > 0 else "")
