"""Sans-IO: facts about models by name, known before the first request.

Services offer the same model under many names: with a vendor prefix (`openai/gpt-4o`,
`us.anthropic.claude-opus-4-1-20250805-v1:0`), with a date or `:free` appended, with `4.5` or `4-5`.
Each row of the table names a version; a version without a row does not match an older one.

Numbers are listed only if the model's vendor publishes them and services honor them. Other limits
are learned from the responses of a service (`agent.model.learned`).
"""

import functools
import re

import msgspec

_K = 1024
_M = 1024 * 1024
_MINUTE = 60.0
_OPUS, _SONNET = 4 * _MINUTE, 3 * _MINUTE
_QWEN3 = 3 * _MINUTE


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Known limits and traits of a model, in tokens and seconds."""

    context_window: int | None = None  # input and output together
    max_output: int | None = None
    supports_prefill: bool = False
    """True if the model continues a final assistant message, unless reasoning is on."""

    min_first_token_seconds: float = 0.0  # lower bound for the first-token and silence timeouts
    can_reason: bool = False
    may_only_announce: bool = False  # may announce an action and stop without the tool call


_UNKNOWN = ModelFacts()

_REASONING = ModelFacts(can_reason=True)
_REASONING_LONG = ModelFacts(can_reason=True, min_first_token_seconds=5 * _MINUTE)
_REASONING_VERY_LONG = ModelFacts(can_reason=True, min_first_token_seconds=10 * _MINUTE)


def _openai_model(
    window: int, max_output: int, floor: float = 0.0, *, thinks: bool = True
) -> ModelFacts:
    return ModelFacts(
        context_window=window,
        max_output=max_output,
        min_first_token_seconds=floor,
        can_reason=thinks,
    )


def _chat_model(window: int, max_output: int | None = None) -> ModelFacts:
    return ModelFacts(context_window=window, max_output=max_output)


def _claude_model(
    max_output: int, floor: float = 0.0, *, window: int = 200_000, thinks: bool = True
) -> ModelFacts:
    # From version 4.6 on, which has the larger window, the service rejects prefilled answers.
    return ModelFacts(
        context_window=window,
        max_output=max_output,
        supports_prefill=window == 200_000,  # noqa: PLR2004 - see above
        min_first_token_seconds=floor,
        can_reason=thinks,
    )


_MODEL_TABLE: tuple[tuple[str, ModelFacts], ...] = (
    # OpenAI
    (r"gpt-oss", ModelFacts(context_window=128 * _K, can_reason=True)),
    (r"(?:chat)?gpt-4o-2024-05-13", _chat_model(128_000, 4096)),
    (r"(?:chat)?gpt-4o", _chat_model(128_000, 16_384)),
    (r"gpt-4\.1", _chat_model(1_047_576, 32_768)),
    (r"gpt-4\.5", _chat_model(128_000, 16_384)),
    (r"gpt-4-(?:turbo|0125|1106|vision)", _chat_model(128_000, 4096)),
    (r"gpt-4-32k", _chat_model(32_768)),
    (r"gpt-4", _chat_model(8192, 8192)),
    (r"gpt-3\.5-turbo", _chat_model(16_385, 4096)),
    (r"gpt-5(?:\.\d)?-chat", _chat_model(128_000, 16_384)),
    (r"gpt-5-pro", _openai_model(400_000, 272_000, 10 * _MINUTE)),
    (r"gpt-5\.2-pro", _openai_model(400_000, 128_000, 10 * _MINUTE)),
    (r"gpt-5\.[45]-pro", _openai_model(1_050_000, 128_000, 10 * _MINUTE)),
    (r"gpt-5\.4-(?:mini|nano)", _openai_model(400_000, 128_000)),
    (r"gpt-5\.[456]", _openai_model(1_050_000, 128_000)),
    (r"gpt-5(?:\.[123])?", _openai_model(400_000, 128_000)),
    (r"gpt-[5-9](?:\.\d+)?", _REASONING),
    (r"codex-mini", _openai_model(200_000, 100_000)),
    (r"^o1-mini", _openai_model(128_000, 65_536, 10 * _MINUTE)),
    (r"^o1-preview", _openai_model(128_000, 32_768, 10 * _MINUTE)),
    (r"^o[34]-mini", _openai_model(200_000, 100_000, 5 * _MINUTE)),
    (r"^o[13]", _openai_model(200_000, 100_000, 10 * _MINUTE)),
    # Anthropic
    (r"claude-3-(?:opus|haiku)", _claude_model(4096, thinks=False)),
    (r"claude-3-sonnet", _claude_model(4096, _SONNET, thinks=False)),
    (r"claude-3[.-]5-haiku", _claude_model(8192, thinks=False)),
    (r"claude-3[.-]5-sonnet", _claude_model(8192, _SONNET, thinks=False)),
    (r"claude-3[.-]7-sonnet", _claude_model(64_000, _SONNET)),
    (r"claude-(?:opus-4(?:[.-][01])?|4(?:[.-][01])?-opus)", _claude_model(32_000, _OPUS)),
    (r"claude-(?:opus-4[.-]5|4[.-]5-opus)", _claude_model(64_000, _OPUS)),
    (r"claude-(?:sonnet-4(?:[.-][05])?|4(?:[.-][05])?-sonnet)", _claude_model(64_000, _SONNET)),
    (r"claude-(?:haiku-4[.-]5|4[.-]5-haiku)", _claude_model(64_000)),
    (r"claude-opus-(?:4[.-][678]|5(?:[.-]5)?)", _claude_model(128_000, _OPUS, window=1_000_000)),
    (r"claude-sonnet-(?:4[.-]6|5(?:[.-]5)?)", _claude_model(128_000, _SONNET, window=1_000_000)),
    (r"claude-haiku-5[.-]5", _claude_model(128_000, window=1_000_000)),
    (r"claude-(?:fable|mythos)-5(?:[.-]1)?", _claude_model(128_000, _OPUS, window=1_000_000)),
    (r"claude-(?:opus|fable|mythos).*", ModelFacts(can_reason=True, min_first_token_seconds=_OPUS)),
    (r"claude-.*sonnet.*", ModelFacts(can_reason=True, min_first_token_seconds=_SONNET)),
    # Google; image and speech variants have other limits
    (r"gemini-.*(?:image|tts|live|audio).*", _UNKNOWN),
    (r"gemini-1\.5-pro", _chat_model(2 * _M, 8192)),
    (r"gemini-(?:1\.5|2\.0)-flash", _chat_model(_M, 8192)),
    (
        r"gemini-(?:2\.5|3(?:\.\d)?)-(?:pro|flash)",
        ModelFacts(context_window=_M, max_output=65_536, can_reason=True),
    ),
    # DeepSeek; the context window of R1 depends on the service
    (
        r"deepseek-(?:v4(?:\.\d)?|flash)",
        ModelFacts(
            context_window=_M,
            max_output=384 * _K,
            min_first_token_seconds=10 * _MINUTE,
            can_reason=True,
        ),
    ),
    (r"deepseek-(?:r1|reasoner)", _REASONING_VERY_LONG),
    (r"deepseek-(?:chat-)?v3(?:\.[12])?", _chat_model(128 * _K)),
    # Grok; most versions have a reasoning and a non-reasoning variant
    (r"grok-4(?:[.-]1)?-fast-non-reasoning", _chat_model(2_000_000)),
    (r"grok-4[.-]20.*-non-reasoning", _chat_model(2_000_000)),
    (r"grok-.*non-reasoning", _UNKNOWN),
    (
        r"grok-(?:4(?:[.-]1)?-fast|4[.-]20)",
        ModelFacts(context_window=2_000_000, can_reason=True, min_first_token_seconds=5 * _MINUTE),
    ),
    (
        r"grok-(?:4|code-fast(?:-1)?)",
        ModelFacts(context_window=256_000, can_reason=True, min_first_token_seconds=5 * _MINUTE),
    ),
    (
        r"grok-4\.3",
        ModelFacts(context_window=1_000_000, can_reason=True, min_first_token_seconds=5 * _MINUTE),
    ),
    (
        r"grok-3-mini",
        ModelFacts(context_window=128 * _K, can_reason=True, min_first_token_seconds=5 * _MINUTE),
    ),
    (r"grok-[23]", _chat_model(128 * _K)),
    (r"grok-(?:[4-9]|.*reasoning).*", _REASONING_LONG),
    # Open models; a self-hosted server may be configured for a smaller window
    (r"nemotron-.*ultra", _REASONING_VERY_LONG),
    (
        r"qwen3-(?:next|max|.*2507)",
        ModelFacts(context_window=256 * _K, min_first_token_seconds=_QWEN3, can_reason=True),
    ),
    (r"qwen3-coder-\d+b", ModelFacts(context_window=256 * _K, min_first_token_seconds=_QWEN3)),
    (r"(?:qwen3|qwq).*", ModelFacts(min_first_token_seconds=_QWEN3, can_reason=True)),
    (r"llama-?3[.-][123]", _chat_model(128 * _K)),
    (r"llama-?3", _chat_model(8 * _K)),
    # Mistral
    (r"magistral.*", _REASONING),
    (r"mistral-small-(?:2312|2402|2409|2501)", _chat_model(32 * _K)),
    (r"codestral-2405", _chat_model(32 * _K)),
    (r"codestral", _chat_model(256_000)),
    (r"mistral-(?:large|medium|small|nemo)|(?:mini|dev)stral|pixtral", _chat_model(128 * _K)),
)

_ANNOUNCING_MODELS = (
    # Reports of agents that stop at "I will now …" until the user says "continue":
    r"gpt-4o|gpt-4\.1",  # LibreChat #7612, vscode-copilot-release #8105
    r"gpt-5\.[12]",  # codex #7923: ends its turn after the text that introduces a call
    r"kimi-k[23].*|glm-[45].*|deepseek-(?:chat|v3|v4).*",  # hermes-agent #78113, open-science #408
    # Self-hosted open models: with a foreign chat template, or with many tools, calls come out as
    # prose (omlx #3153, QwenPaw #3107).
    r"qwen-?[23].*|qwq.*",
    r"llama-?3.*",
    r"mistral-(?:small.*|nemo|7b)|(?:mini|dev)stral",
)


def _compile_row(name: str) -> re.Pattern[str]:
    # Anything may follow the name except further digits of the version.
    return re.compile(rf"(?:^|[^a-z0-9])(?:{name})(?!\d|\.\d|-\d(?![\da-z]))")


@functools.lru_cache(maxsize=256)
def model_facts(model: str) -> ModelFacts:
    """Return the facts about a model; empty for an unknown one."""
    name = model.lower().rpartition("/")[2]
    # Compiled on demand, to keep the patterns of unused models out of the start-up time.
    known = next((known for row, known in _MODEL_TABLE if _compile_row(row).search(name)), _UNKNOWN)
    announces = any(_compile_row(row).search(name) for row in _ANNOUNCING_MODELS)
    return msgspec.structs.replace(known, may_only_announce=True) if announces else known
