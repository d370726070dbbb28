"""Settings of the agent: models, timeouts, tools and voice.

A settings struct may have a method `conflicts`. It yields, for each key that contradicts another
one, the key's path inside the struct and the end of an error message.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from sessions.values.secret import Secret

Seconds = Annotated[float, Meta(gt=0)]

# Default models, used if no name is configured.
OPENAI_MODEL = "gpt-5.5"
ANTHROPIC_MODEL = "claude-sonnet-5-5"

# Defaults of the timeouts that adapt to the model and to the size of a request; these are None in
# `Timeouts`. A configured value replaces the whole calculation.
FIRST_TOKEN_SECONDS = 90.0
GAP_TEXT_SECONDS = 90.0
GAP_TOOL_SECONDS = 150.0
GAP_REASONING_SECONDS = 180.0

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
REASONING_EFFORTS: dict[str, ReasoningEffort] = {each: each for each in get_args(ReasoningEffort)}
"""Levels of reasoning effort, lowest first."""


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timeouts of a model's answer, in seconds.

    A timeout that is left out may adapt to the model; a configured one is used unchanged.
    """

    connect: Annotated[Seconds, Meta(description="Name lookup, connection and TLS.")] = 15.0
    first_token: Annotated[
        Seconds | None,
        Meta(
            description="Time until the first token; then the request is cancelled. "
            f"Default: {FIRST_TOKEN_SECONDS:g}, longer for long requests and for reasoning models."
        ),
    ] = None
    first_token_soft: Annotated[
        Seconds | None,
        Meta(
            description="Time until the user is notified that the model has not started to answer. "
            "Default: the value of notice_after, longer for models known to be slow."
        ),
    ] = None
    notice_after: Annotated[
        Seconds,
        Meta(
            description="Silence after which the user is notified. A recovery that takes longer "
            "than a sixth of this is announced as well."
        ),
    ] = 30.0
    gap_text: Annotated[
        Seconds | None,
        Meta(description=f"Silence inside a text. Default: {GAP_TEXT_SECONDS:g}, adaptive."),
    ] = None
    gap_tool: Annotated[
        Seconds | None,
        Meta(
            description="Silence inside a tool call's arguments. "
            f"Default: {GAP_TOOL_SECONDS:g}, adaptive."
        ),
    ] = None
    gap_reasoning: Annotated[
        Seconds | None,
        Meta(
            description=f"Silence inside reasoning. Default: {GAP_REASONING_SECONDS:g}, adaptive."
        ),
    ] = None
    wire_dead: Annotated[
        Seconds,
        Meta(description="Time without any data, for services that send regular keepalives."),
    ] = 75.0
    lifetime: Annotated[Seconds, Meta(description="Total duration of one request.")] = 1800.0
    min_rate: Annotated[
        float,
        Meta(
            ge=0,
            description="Characters per second below which an answer counts as stalled; 0: never.",
        ),
    ] = 0.5
    min_rate_window: Annotated[
        Seconds, Meta(description="Period over which the rate is measured.")
    ] = 120.0
    backoff: Annotated[
        Seconds, Meta(description="Wait before the first retry; doubles with each retry.")
    ] = 1.0

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield contradictory keys; see the module's docstring."""
        if self.first_token is not None and self.lifetime < self.first_token:
            yield ("lifetime",), f"must not be shorter than first_token ({self.first_token:g} s)"


class PriceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Price of a model in dollars per million tokens, for `/usage`."""

    input: Annotated[float, Meta(ge=0, description="Price of input tokens.")]
    output: Annotated[float, Meta(ge=0, description="Price of output tokens.")]
    cached: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="Price of input tokens read from the service's cache. "
            "Default: the price of input."
        ),
    ] = None


ProviderName = Annotated[
    str,
    Meta(
        pattern="^[a-z][a-z0-9_-]*$",
        extra={
            "form": 'one of "openai", "openai-responses", "anthropic", "demo", or the name of an '
            "installed provider plug-in"
        },
    ),
]


class TargetSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fallback model, used when the models before it do not answer; same keys as `[model]`.

    Without `provider`, it uses the provider, address and key of `[model]`.
    """

    provider: Annotated[
        ProviderName,
        Meta(
            description="Protocol of the model service. Default: `openai` if its key or a "
            "`base_url` is set, else `anthropic` if its key is set, else `demo`."
        ),
    ] = "demo"
    name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description=f"Name of the model. Default: `{OPENAI_MODEL}` for OpenAI, "
            f"`{ANTHROPIC_MODEL}` for Anthropic, or the first model that the server at `base_url` "
            "lists."
        ),
    ] = None
    base_url: Annotated[
        Annotated[
            str,
            Meta(pattern=r"^https?://[^\s]+$", extra={"form": "an http:// or https:// address"}),
        ]
        | None,
        Meta(description="Address of the model service. Default: the provider's own."),
    ] = None
    api_key: Annotated[Secret | None, Meta(description="API key of the model service.")] = None
    max_output_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Maximum tokens per answer. Default: the service's limit."),
    ] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(description="Randomness of the answers. Default: the service's default."),
    ] = None
    reasoning_effort: Annotated[
        ReasoningEffort | None,
        Meta(description="Amount of reasoning before an answer. Default: the service's default."),
    ] = None
    context_window: Annotated[
        Annotated[int, Meta(ge=1024)] | None,
        Meta(
            description="Context window of the model in tokens. "
            "Default: the known window of the model."
        ),
    ] = None
    price: Annotated[PriceSettings | None, Meta(description="See `[model.price]`.")] = None
    timeouts: Annotated[Timeouts, Meta(description="See `[model.timeouts]`.")] = Timeouts()


class ModelSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The primary model."""

    fallback: Annotated[
        tuple[TargetSettings, ...],
        Meta(description="Models to try, in this order, when this one does not answer."),
    ] = ()
    list: Annotated[
        bool,
        Meta(
            description="List all models of the service in `GET /v1/models`, so that API clients "
            "can offer them."
        ),
    ] = False

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield contradictory keys; see the module's docstring."""
        if self.provider == "demo":
            for key in ("name", "base_url", "api_key"):
                if getattr(self, key) not in {None, "demo"}:
                    yield (key,), "has no effect with the demo model; set model.provider as well"
        for index, other in enumerate(self.fallback):
            if other.name is None and other.provider != "demo":
                yield ("fallback", index), "needs a name"


class ModelServiceDefaults(Struct, frozen=True):
    """Built-in knowledge about a model service."""

    key_variable: str = ""  # environment variable that usually holds the API key
    url_variable: str = ""
    model: str | None = None  # default model, unless `base_url` names another server


_OPENAI = ModelServiceDefaults("OPENAI_API_KEY", "OPENAI_BASE_URL", OPENAI_MODEL)
SERVICES: dict[str, ModelServiceDefaults] = {
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": ModelServiceDefaults("ANTHROPIC_API_KEY", "", ANTHROPIC_MODEL),
    "demo": ModelServiceDefaults(model="demo"),
}


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Behavior of the agent."""

    system_prompt: Annotated[
        str | None, Meta(description="Instructions for the model, sent with every conversation.")
    ] = None
    system_prompt_file: Annotated[
        Path | None, Meta(description="File that contains the system prompt.")
    ] = None
    max_steps: Annotated[
        int, Meta(ge=1, le=10_000, description="Maximum number of model answers in one turn.")
    ] = 90
    workspace: Annotated[
        Path | None,
        Meta(
            description="Folder for the files of the tools, shared by all people. "
            "Default: one folder per person in the state folder."
        ),
    ] = None
    tool_timeout: Annotated[
        Seconds, Meta(description="Maximum run time of a tool, in seconds.")
    ] = 300.0
    max_answer_characters: Annotated[
        int,
        Meta(
            ge=10_000,
            description="Maximum length of one answer of the model, in characters; a longer one is "
            "ended there, with a note.",
        ),
    ] = 2_000_000
    show_reasoning: Annotated[bool, Meta(description="Show the model's reasoning.")] = False

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield contradictory keys; see the module's docstring."""
        if self.system_prompt is not None and self.system_prompt_file is not None:
            yield ("system_prompt_file",), "cannot be combined with agent.system_prompt; keep one"


class ShellSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the sandbox that shell commands run in."""

    sandbox: Annotated[
        Literal["auto", "bwrap", "none"],
        Meta(
            description="`auto` uses bubblewrap if it is installed, `bwrap` requires it, "
            "`none` runs commands with the daemon's permissions."
        ),
    ] = "auto"


class ToolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools of the agent."""

    enabled: Annotated[
        tuple[Literal["files", "shell", "web", "memory", "schedule"], ...],
        Meta(description="Tool families available to the model."),
    ] = ("files",)
    approval: Annotated[
        Literal["ask", "never"],
        Meta(description="`ask` for approval before a risky call, or `never` ask."),
    ] = "ask"
    shell: Annotated[ShellSettings, Meta(description="See `[tools.shell]`.")] = ShellSettings()


class McpToolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selection of a server's tools. Names are those of the server; `*` stands for any characters."""

    allow: Annotated[
        tuple[str, ...] | None, Meta(description="Tools to offer. Default: all of the server's.")
    ] = None
    deny: Annotated[tuple[str, ...], Meta(description="Tools not to offer.")] = ()


class McpOauthSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Login at an MCP server with OAuth; only for servers that do not register clients themselves."""

    grant: Annotated[
        Literal["authorization_code", "client_credentials"],
        Meta(
            description="`authorization_code`: a person logs in with `holdfast mcp login`. "
            "`client_credentials`: Holdfast logs in by itself."
        ),
    ] = "authorization_code"
    client_id: Annotated[
        str | None, Meta(description="Id of a client that is registered already.")
    ] = None
    client_secret: Annotated[Secret | None, Meta(description="Secret of that client.")] = None
    scope: Annotated[
        str | None, Meta(description="Scopes to ask for. Default: those that the server names.")
    ] = None
    redirect_port: Annotated[
        Annotated[int, Meta(ge=1, le=65_535)] | None,
        Meta(
            description="Port of the redirect address `http://127.0.0.1:PORT/callback`, if it is "
            "registered. Default: a free one."
        ),
    ] = None

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield contradictory keys; see the module's docstring."""
        if self.grant == "client_credentials" and not (self.client_id and self.client_secret):
            yield ("grant",), "needs client_id and client_secret"


class McpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MCP server (Model Context Protocol) whose tools the agent may use."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_-]{1,32}$",
            extra={"form": "a short word of letters, digits, - and _"},
            description="Prefix of the server's tool names.",
        ),
    ]
    command: Annotated[
        str | None, Meta(description="Program to start, for a server on this machine.")
    ] = None
    args: Annotated[tuple[str, ...], Meta(description="Arguments of the program.")] = ()
    env: Annotated[
        dict[str, Secret], Meta(description="Environment of the program; secrets allowed.")
    ] = {}
    url: Annotated[str | None, Meta(description="Address of a remote server.")] = None
    headers: Annotated[
        dict[str, Secret], Meta(description="Headers sent to that address; secrets allowed.")
    ] = {}
    oauth: Annotated[McpOauthSettings | None, Meta(description="See `[mcp.oauth]`.")] = None
    login: Annotated[
        Literal["shared", "person"],
        Meta(
            description="`shared`: one login for all people. `person`: each person logs in with "
            "`/mcp login NAME`, and only that person's requests use this login."
        ),
    ] = "shared"
    cwd: Annotated[
        Path | None, Meta(description="Working folder of the program. Default: the daemon's.")
    ] = None
    disabled: Annotated[
        bool, Meta(description="Do not connect to the server, but keep its configuration.")
    ] = False
    timeout: Annotated[
        Seconds | None,
        Meta(description="Maximum run time of a call, in seconds. Default: `agent.tool_timeout`."),
    ] = None
    approval: Annotated[
        Literal["auto", "ask", "never"],
        Meta(
            description="`auto` asks before calls of tools without `readOnlyHint`, `ask` before "
            "every call, `never` only before calls of a tool that the server has changed."
        ),
    ] = "auto"
    instructions: Annotated[
        bool, Meta(description="Give the server's instructions to the model.")
    ] = True
    prompts: Annotated[
        bool, Meta(description="Offer the server's prompts as commands in chats.")
    ] = True
    enabled_tools: Annotated[
        tuple[str, ...] | None,
        Meta(description="Older form of `allow` in `[mcp.tools]`, with exact names."),
    ] = None
    tools: Annotated[McpToolSettings, Meta(description="See `[mcp.tools]`.")] = McpToolSettings()

    def offers(self, tool: str) -> bool:
        """True if a tool of the server is offered to the model."""
        if self.enabled_tools is not None and tool not in self.enabled_tools:
            return False
        allow = self.tools.allow
        if allow is not None and not any(fnmatchcase(tool, pattern) for pattern in allow):
            return False
        return not any(fnmatchcase(tool, pattern) for pattern in self.tools.deny)

    @property
    def login_command(self) -> str:
        """The command with which a person logs in at the server."""
        program = "/mcp" if self.login == "person" else "holdfast mcp"
        return f"{program} login {self.name}"

    @property
    def expected_tools(self) -> frozenset[str]:
        """Exact names of tools that the server should have."""
        names = (*(self.enabled_tools or ()), *(self.tools.allow or ()))
        return frozenset(name for name in names if not _is_pattern(name))

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield contradictory keys; see the module's docstring."""
        if (self.command is None) == (self.url is None):
            yield (), "needs either a command or a url"
        for key, value, user in (
            ("args", self.args, "command"),
            ("env", self.env, "command"),
            ("cwd", self.cwd, "command"),
            ("headers", self.headers, "url"),
            ("oauth", self.oauth, "url"),
        ):
            if value and getattr(self, user) is None:
                yield (key,), f"has no effect without {user}"
        if self.login == "person" and self.url is None:
            yield ("login",), "has no effect without url"
        if self.login == "person" and self.oauth and self.oauth.grant == "client_credentials":
            yield ("login",), "cannot be combined with oauth.grant = client_credentials"
        if self.enabled_tools is not None and self.tools.allow is not None:
            yield ("enabled_tools",), "cannot be combined with tools.allow; keep one"


def _is_pattern(name: str) -> bool:
    return not {"*", "?", "["}.isdisjoint(name)


class VoiceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speech services: transcription and speech synthesis."""

    transcription_url: Annotated[
        Annotated[
            str,
            Meta(pattern=r"^https?://[^\s/]+", extra={"form": "an http:// or https:// address"}),
        ]
        | None,
        Meta(
            description="Address of a transcription service for voice messages with OpenAI's API, "
            "such as `https://api.openai.com/v1`. Without it, voice messages are ordinary files "
            "that the model cannot listen to."
        ),
    ] = None
    transcription_model: Annotated[
        str | None, Meta(description="Transcription model. Default: `whisper-1`.")
    ] = None
    speech_url: Annotated[
        str | None, Meta(description="Address of the service that reads answers aloud.")
    ] = None
    speech_model: Annotated[str | None, Meta(description="Speech model.")] = None
    api_key: Annotated[Secret | None, Meta(description="API key of these services.")] = None

    def conflicts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield contradictory keys; see the module's docstring."""
        if self.transcription_url is not None:
            return
        for key in ("transcription_model", "api_key"):
            if getattr(self, key) is not None:
                yield (key,), "has no effect without voice.transcription_url"
