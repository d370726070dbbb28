"""Sans-IO: what is known of models by their names, before one is asked.

Services sell the same model under many names: with a vendor in front (`openai/gpt-4o`,
`us.anthropic.claude-opus-4-1-20250805-v1:0`), with a date or `:free` behind, with `4.5` or `4-5`.
A row names a version; a version that has no row is not taken for its older sibling.

A number stands here only where the maker of the model publishes it and services keep to it; the
others are learned from what a service answers (`agent.model.learned`).
"""

import functools
import re

import msgspec

_K = 1024
_M = 1024 * 1024
_MINUTE = 60.0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model; tokens and seconds."""

    window: int | None = None  # what goes in and what comes out, together
    max_output: int | None = None
    prefill: bool = False  # goes on from an assistant's text at the end, unless it is thinking
    first_token_floor: float = 0.0  # it may think so long before a first sign
    thinks: bool = False  # can think before it answers
    announces: bool = False  # may say what it will do, and stop without doing it


_UNKNOWN = Facts()

_THINKS = Facts(thinks=True)
_THINKS_LONG = Facts(thinks=True, first_token_floor=5 * _MINUTE)
_THINKS_VERY_LONG = Facts(thinks=True, first_token_floor=10 * _MINUTE)


def _openai(window: int, max_output: int, floor: float = 0.0, *, thinks: bool = True) -> Facts:
    return Facts(window=window, max_output=max_output, first_token_floor=floor, thinks=thinks)


def _talks(window: int, max_output: int | None = None) -> Facts:
    return Facts(window=window, max_output=max_output)


def _claude(
    max_output: int, floor: float = 0.0, *, window: int = 200_000, thinks: bool = True
) -> Facts:
    # From 4.6 on, the versions with the large window, the service refuses a prefilled answer.
    return Facts(
        window=window,
        max_output=max_output,
        prefill=window == 200_000,  # noqa: PLR2004 - see above
        first_token_floor=floor,
        thinks=thinks,
    )


_OPUS, _SONNET = 4 * _MINUTE, 3 * _MINUTE
_QWEN3 = 3 * _MINUTE

_TABLE: tuple[tuple[str, Facts], ...] = (
    # OpenAI
    (r"gpt-oss", Facts(window=128 * _K, thinks=True)),
    (r"(?:chat)?gpt-4o-2024-05-13", _talks(128_000, 4096)),
    (r"(?:chat)?gpt-4o", _talks(128_000, 16_384)),
    (r"gpt-4\.1", _talks(1_047_576, 32_768)),
    (r"gpt-4\.5", _talks(128_000, 16_384)),
    (r"gpt-4-(?:turbo|0125|1106|vision)", _talks(128_000, 4096)),
    (r"gpt-4-32k", _talks(32_768)),
    (r"gpt-4", _talks(8192, 8192)),
    (r"gpt-3\.5-turbo", _talks(16_385, 4096)),
    (r"gpt-5(?:\.\d)?-chat", _talks(128_000, 16_384)),
    (r"gpt-5-pro", _openai(400_000, 272_000, 10 * _MINUTE)),
    (r"gpt-5\.2-pro", _openai(400_000, 128_000, 10 * _MINUTE)),
    (r"gpt-5\.[45]-pro", _openai(1_050_000, 128_000, 10 * _MINUTE)),
    (r"gpt-5\.4-(?:mini|nano)", _openai(400_000, 128_000)),
    (r"gpt-5\.[456]", _openai(1_050_000, 128_000)),
    (r"gpt-5(?:\.[123])?", _openai(400_000, 128_000)),
    (r"gpt-[5-9](?:\.\d+)?", _THINKS),
    (r"codex-mini", _openai(200_000, 100_000)),
    (r"^o1-mini", _openai(128_000, 65_536, 10 * _MINUTE)),
    (r"^o1-preview", _openai(128_000, 32_768, 10 * _MINUTE)),
    (r"^o[34]-mini", _openai(200_000, 100_000, 5 * _MINUTE)),
    (r"^o[13]", _openai(200_000, 100_000, 10 * _MINUTE)),
    # Anthropic
    (r"claude-3-(?:opus|haiku)", _claude(4096, thinks=False)),
    (r"claude-3-sonnet", _claude(4096, _SONNET, thinks=False)),
    (r"claude-3[.-]5-haiku", _claude(8192, thinks=False)),
    (r"claude-3[.-]5-sonnet", _claude(8192, _SONNET, thinks=False)),
    (r"claude-3[.-]7-sonnet", _claude(64_000, _SONNET)),
    (r"claude-(?:opus-4(?:[.-][01])?|4(?:[.-][01])?-opus)", _claude(32_000, _OPUS)),
    (r"claude-(?:opus-4[.-]5|4[.-]5-opus)", _claude(64_000, _OPUS)),
    (r"claude-(?:sonnet-4(?:[.-][05])?|4(?:[.-][05])?-sonnet)", _claude(64_000, _SONNET)),
    (r"claude-(?:haiku-4[.-]5|4[.-]5-haiku)", _claude(64_000)),
    (r"claude-opus-(?:4[.-][678]|5(?:[.-]5)?)", _claude(128_000, _OPUS, window=1_000_000)),
    (r"claude-sonnet-(?:4[.-]6|5(?:[.-]5)?)", _claude(128_000, _SONNET, window=1_000_000)),
    (r"claude-haiku-5[.-]5", _claude(128_000, window=1_000_000)),
    (r"claude-(?:fable|mythos)-5(?:[.-]1)?", _claude(128_000, _OPUS, window=1_000_000)),
    (r"claude-(?:opus|fable|mythos).*", Facts(thinks=True, first_token_floor=_OPUS)),
    (r"claude-.*sonnet.*", Facts(thinks=True, first_token_floor=_SONNET)),
    # Google; the variants that draw or speak have other limits
    (r"gemini-.*(?:image|tts|live|audio).*", _UNKNOWN),
    (r"gemini-1\.5-pro", _talks(2 * _M, 8192)),
    (r"gemini-(?:1\.5|2\.0)-flash", _talks(_M, 8192)),
    (
        r"gemini-(?:2\.5|3(?:\.\d)?)-(?:pro|flash)",
        Facts(window=_M, max_output=65_536, thinks=True),
    ),
    # DeepSeek; how much of R1's window there is depends on who serves it
    (
        r"deepseek-(?:v4(?:\.\d)?|flash)",
        Facts(window=_M, max_output=384 * _K, first_token_floor=10 * _MINUTE, thinks=True),
    ),
    (r"deepseek-(?:r1|reasoner)", _THINKS_VERY_LONG),
    (r"deepseek-(?:chat-)?v3(?:\.[12])?", _talks(128 * _K)),
    # Grok: most versions come as one that reasons and one that does not
    (r"grok-4(?:[.-]1)?-fast-non-reasoning", _talks(2_000_000)),
    (r"grok-4[.-]20.*-non-reasoning", _talks(2_000_000)),
    (r"grok-.*non-reasoning", _UNKNOWN),
    (
        r"grok-(?:4(?:[.-]1)?-fast|4[.-]20)",
        Facts(window=2_000_000, thinks=True, first_token_floor=5 * _MINUTE),
    ),
    (
        r"grok-(?:4|code-fast(?:-1)?)",
        Facts(window=256_000, thinks=True, first_token_floor=5 * _MINUTE),
    ),
    (r"grok-4\.3", Facts(window=1_000_000, thinks=True, first_token_floor=5 * _MINUTE)),
    (r"grok-3-mini", Facts(window=128 * _K, thinks=True, first_token_floor=5 * _MINUTE)),
    (r"grok-[23]", _talks(128 * _K)),
    (r"grok-(?:[4-9]|.*reasoning).*", _THINKS_LONG),
    # Open models; a server of one's own may well be set to less than they were made for
    (r"nemotron-.*ultra", _THINKS_VERY_LONG),
    (
        r"qwen3-(?:next|max|.*2507)",
        Facts(window=256 * _K, first_token_floor=_QWEN3, thinks=True),
    ),
    (r"qwen3-coder-\d+b", Facts(window=256 * _K, first_token_floor=_QWEN3)),
    (r"(?:qwen3|qwq).*", Facts(first_token_floor=_QWEN3, thinks=True)),
    (r"llama-?3[.-][123]", _talks(128 * _K)),
    (r"llama-?3", _talks(8 * _K)),
    # Mistral
    (r"magistral.*", _THINKS),
    (r"mistral-small-(?:2312|2402|2409|2501)", _talks(32 * _K)),
    (r"codestral-2405", _talks(32 * _K)),
    (r"codestral", _talks(256_000)),
    (r"mistral-(?:large|medium|small|nemo)|(?:mini|dev)stral|pixtral", _talks(128 * _K)),
)

_ANNOUNCING = (
    # Reports of agents that stop at "I will now …" until somebody says "continue":
    r"gpt-4o|gpt-4\.1",  # LibreChat #7612, vscode-copilot-release #8105
    r"gpt-5\.[12]",  # codex #7923: takes the words before a call for a turn of their own
    r"kimi-k[23].*|glm-[45].*|deepseek-(?:chat|v3|v4).*",  # hermes-agent #78113, open-science #408
    # Open models on a server of one's own: where its template is not the model's own, or many tools
    # are offered, calls come out as prose (omlx #3153, QwenPaw #3107).
    r"qwen-?[23].*|qwq.*",
    r"llama-?3.*",
    r"mistral-(?:small.*|nemo|7b)|(?:mini|dev)stral",
)


def _row(name: str) -> re.Pattern[str]:
    # Behind the name there may be anything but a further digit of the version.
    return re.compile(rf"(?:^|[^a-z0-9])(?:{name})(?!\d|\.\d|-\d(?![\da-z]))")


@functools.lru_cache(maxsize=256)
def facts(model: str) -> Facts:
    """Tell what is known of a model; of an unknown one, nothing."""
    name = model.lower().rpartition("/")[2]
    # A start need not wait for patterns of models that nobody uses.
    known = next((known for row, known in _TABLE if _row(row).search(name)), _UNKNOWN)
    announces = any(_row(row).search(name) for row in _ANNOUNCING)
    return msgspec.structs.replace(known, announces=True) if announces else known
