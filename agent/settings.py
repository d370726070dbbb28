"""What can be configured about the agent: models, their clocks, tools, voice.

A settings struct may have a method `conflicts`: it yields a key's path inside the struct, and what
is wrong with that key in view of the others.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from sessions.values.secret import Secret

Seconds = Annotated[float, Meta(gt=0)]

# Models that answer when none is named.
OPENAI_MODEL = "gpt-5.5"
ANTHROPIC_MODEL = "claude-sonnet-5-5"

# Clocks that adapt to the model and to the size of a request are left open in `Timeouts`. This is
# what they start from; a value in the configuration replaces the whole calculation.
FIRST_TOKEN_SECONDS = 90.0
GAP_TEXT_SECONDS = 90.0
GAP_TOOL_SECONDS = 150.0
GAP_REASONING_SECONDS = 180.0

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
REASONING_EFFORTS: dict[str, ReasoningEffort] = {each: each for each in get_args(ReasoningEffort)}
"""Efforts by name, the shortest first."""


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long each part of a model's answer may take, in seconds.

    A clock that is left open adapts to the model; one that is set is taken as it is.
    """

    connect: Annotated[Seconds, Meta(description="Name lookup, connection and TLS.")] = 15.0
    first_token: Annotated[
        Seconds | None,
        Meta(
            description="Until the first sign of an answer; then the request is given up. "
            "Left open: 90, longer for long requests and for models that think first."
        ),
    ] = None
    first_token_soft: Annotated[
        Seconds | None,
        Meta(
            description="Until the user is told that a model has not begun to answer. "
            "Left open: as notice_after, or later where the model is known to be slow."
        ),
    ] = None
    notice_after: Annotated[
        Seconds,
        Meta(
            description="Silence after which the user is told about it; a recovery that takes "
            "a sixth of this is told as well."
        ),
    ] = 30.0
    gap_text: Annotated[
        Seconds | None, Meta(description="Silence inside a text. Left open: 90, adapting.")
    ] = None
    gap_tool: Annotated[
        Seconds | None,
        Meta(description="Silence inside a tool call's arguments. Left open: 150, adapting."),
    ] = None
    gap_reasoning: Annotated[
        Seconds | None, Meta(description="Silence inside reasoning. Left open: 180, adapting.")
    ] = None
    wire_dead: Annotated[
        Seconds,
        Meta(description="Time without a single byte, where bytes used to come regularly."),
    ] = 75.0
    lifetime: Annotated[Seconds, Meta(description="One request as a whole.")] = 1800.0
    min_rate: Annotated[
        float,
        Meta(
            ge=0,
            description="Characters a second below which an answer counts as stalled; 0: never.",
        ),
    ] = 0.5
    min_rate_window: Annotated[Seconds, Meta(description="Span over which the rate is taken.")] = (
        120.0
    )
    backoff: Annotated[
        Seconds, Meta(description="First wait before a repeated request; doubles each time.")
    ] = 1.0

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module."""
        if self.first_token is not None and self.lifetime < self.first_token:
            yield ("lifetime",), f"must not be shorter than first_token ({self.first_token:g} s)"


class PriceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model costs, in dollars for a million tokens; `/usage` shows it."""

    input: Annotated[float, Meta(ge=0, description="What the model reads.")]
    output: Annotated[float, Meta(ge=0, description="What the model writes.")]
    cached: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Reading what the service still had. Left out: as other input."),
    ] = None


ProviderName = Annotated[
    str,
    Meta(
        pattern="^[a-z][a-z0-9_-]*$",
        extra={
            "form": 'one of "openai", "openai-responses", "anthropic", "demo", or one that another '
            "distribution brings"
        },
    ),
]


class TargetSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that takes over when the ones before it do not answer; the same keys as `[model]`.

    Without `provider` it is reached the way `[model]` is, with the same key.
    """

    provider: Annotated[
        ProviderName,
        Meta(
            description="Which protocol the model service speaks. Left out: `openai` if its key "
            "or a `base_url` is known, else `anthropic` if its key is, else `demo`."
        ),
    ] = "demo"
    name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description=f"Name of the model. Left out: `{OPENAI_MODEL}` of OpenAI, "
            f"`{ANTHROPIC_MODEL}` of Anthropic, or the only model that the server at `base_url` "
            "lists."
        ),
    ] = None
    base_url: Annotated[
        Annotated[
            str,
            Meta(pattern=r"^https?://[^\s]+$", extra={"form": "an http:// or https:// address"}),
        ]
        | None,
        Meta(description="Address of the model service. Left out: the provider's own."),
    ] = None
    api_key: Annotated[Secret | None, Meta(description="Key of the model service.")] = None
    max_output_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Most tokens of one answer. Left out: what the service allows."),
    ] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(description="How freely the model chooses words. Left out: the service's default."),
    ] = None
    reasoning_effort: Annotated[
        ReasoningEffort | None,
        Meta(description="How long the model may think. Left out: the service's default."),
    ] = None
    context_window: Annotated[
        Annotated[int, Meta(ge=1024)] | None,
        Meta(description="Tokens the model can take in. Left out: what is known of the model."),
    ] = None
    price: Annotated[PriceSettings | None, Meta(description="See `[model.price]`.")] = None
    timeouts: Annotated[Timeouts, Meta(description="See `[model.timeouts]`.")] = Timeouts()


class ModelSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that answers."""

    fallback: Annotated[
        tuple[TargetSettings, ...],
        Meta(description="Models that take over, in this order, when this one does not answer."),
    ] = ()

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module."""
        if self.provider == "demo":
            for key in ("name", "base_url", "api_key"):
                if getattr(self, key) not in {None, "demo"}:
                    yield (key,), "has no effect with the demo model; set model.provider as well"
        for index, other in enumerate(self.fallback):
            if other.name is None and other.provider != "demo":
                yield ("fallback", index), "needs a name"


class ModelServiceDefaults(Struct, frozen=True):
    """What is known of a model service without asking it."""

    key_variable: str = ""  # the environment variable that usually holds its key
    url_variable: str = ""
    model: str | None = None  # used when none is named and the service is not another one


_OPENAI = ModelServiceDefaults("OPENAI_API_KEY", "OPENAI_BASE_URL", OPENAI_MODEL)
SERVICES: dict[str, ModelServiceDefaults] = {
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": ModelServiceDefaults("ANTHROPIC_API_KEY", "", ANTHROPIC_MODEL),
    "demo": ModelServiceDefaults(model="demo"),
}


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the agent behaves."""

    system_prompt: Annotated[
        str | None, Meta(description="What the model is told before every conversation.")
    ] = None
    system_prompt_file: Annotated[
        Path | None, Meta(description="A file that holds the system prompt.")
    ] = None
    max_steps: Annotated[
        int, Meta(ge=1, le=10_000, description="Most model answers in one turn.")
    ] = 90
    workspace: Annotated[
        Path | None,
        Meta(
            description="Folder the tools work in, shared by everybody. "
            "Left out: a folder for each person in the state folder."
        ),
    ] = None
    tool_timeout: Annotated[Seconds, Meta(description="Seconds a tool may run.")] = 300.0
    show_reasoning: Annotated[bool, Meta(description="Show what the model thinks.")] = False

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module."""
        if self.system_prompt is not None and self.system_prompt_file is not None:
            yield ("system_prompt_file",), "cannot stand beside agent.system_prompt; keep one"


class ShellSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where shell commands run."""

    sandbox: Annotated[
        Literal["auto", "bwrap", "none"],
        Meta(
            description="`auto` uses bubblewrap when it is present, `bwrap` insists on it, "
            "`none` runs commands with the daemon's own rights."
        ),
    ] = "auto"


class ToolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent may do."""

    enabled: Annotated[
        tuple[Literal["files", "shell", "web", "memory", "schedule"], ...],
        Meta(description="Families of tools the model is offered."),
    ] = ("files",)
    approval: Annotated[
        Literal["ask", "never"],
        Meta(description="Ask somebody before a risky call, or never ask."),
    ] = "ask"
    shell: Annotated[ShellSettings, Meta(description="See `[tools.shell]`.")] = ShellSettings()


class McpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server whose tools the agent may use (Model Context Protocol)."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_-]{1,32}$",
            extra={"form": "a short word of letters, digits, - and _"},
            description="Stands in front of its tools' names.",
        ),
    ]
    command: Annotated[str | None, Meta(description="Program that is the server.")] = None
    args: Annotated[tuple[str, ...], Meta(description="Its arguments.")] = ()
    env: Annotated[dict[str, Secret], Meta(description="Its environment; secrets allowed.")] = {}
    url: Annotated[str | None, Meta(description="Address of a server that runs elsewhere.")] = None
    headers: Annotated[
        dict[str, Secret], Meta(description="Headers sent to that address; secrets allowed.")
    ] = {}
    enabled_tools: Annotated[
        tuple[str, ...] | None, Meta(description="Only these of its tools. Left out: all.")
    ] = None

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module."""
        if (self.command is None) == (self.url is None):
            yield (), "needs either a command or a url"
        for key, value, user in (
            ("args", self.args, "command"),
            ("env", self.env, "command"),
            ("headers", self.headers, "url"),
        ):
            if value and getattr(self, user) is None:
                yield (key,), f"has no effect without {user}"


class VoiceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Services that turn speech into text and text into speech."""

    transcription_url: Annotated[
        Annotated[
            str,
            Meta(pattern=r"^https?://[^\s/]+", extra={"form": "an http:// or https:// address"}),
        ]
        | None,
        Meta(
            description="Address of a service that writes down voice messages, as OpenAI's does: "
            "`https://api.openai.com/v1`. Left out: they are files like others, and the model is "
            "told that it cannot listen to them."
        ),
    ] = None
    transcription_model: Annotated[
        str | None, Meta(description="Its model. Left out: `whisper-1`.")
    ] = None
    speech_url: Annotated[
        str | None, Meta(description="Address of the service that speaks answers.")
    ] = None
    speech_model: Annotated[str | None, Meta(description="Its model.")] = None
    api_key: Annotated[Secret | None, Meta(description="Key of these services.")] = None

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """See the module."""
        if self.transcription_url is not None:
            return
        for key in ("transcription_model", "api_key"):
            if getattr(self, key) is not None:
                yield (key,), "has no effect without voice.transcription_url"
