import pytest

from agent.model.known_models import ModelFacts, model_facts
from agent.settings import ANTHROPIC_MODEL, OPENAI_MODEL

UNKNOWN = ModelFacts()


@pytest.mark.parametrize(
    ("model", "window", "max_output"),
    [
        ("gpt-4o", 128_000, 16_384),
        ("gpt-4o-mini", 128_000, 16_384),
        ("gpt-4o-2024-05-13", 128_000, 4096),
        ("chatgpt-4o-latest", 128_000, 16_384),
        ("gpt-4.1-nano-2025-04-14", 1_047_576, 32_768),
        ("gpt-4-1106-preview", 128_000, 4096),
        ("gpt-4-0613", 8192, 8192),
        ("gpt-4", 8192, 8192),
        ("gpt-3.5-turbo-0125", 16_385, 4096),
        ("gpt-5", 400_000, 128_000),
        ("gpt-5-2025-08-07", 400_000, 128_000),
        ("gpt-5.2", 400_000, 128_000),
        ("gpt-5.2-chat-latest", 128_000, 16_384),
        ("gpt-5.4-mini", 400_000, 128_000),
        ("gpt-5.5-2026-04-23", 1_050_000, 128_000),
        ("o1-mini", 128_000, 65_536),
        ("o3", 200_000, 100_000),
        ("o4-mini-2025-04-16", 200_000, 100_000),
        ("gpt-oss:20b", 131_072, None),
        ("claude-3-haiku-20240307", 200_000, 4096),
        ("claude-3-5-sonnet-20241022", 200_000, 8192),
        ("claude-3-7-sonnet-latest", 200_000, 64_000),
        ("claude-opus-4-20250514", 200_000, 32_000),
        ("claude-opus-4-1", 200_000, 32_000),
        ("claude-opus-4-5", 200_000, 64_000),
        ("claude-sonnet-4-5-20250929", 200_000, 64_000),
        ("claude-haiku-4-5", 200_000, 64_000),
        ("claude-opus-4-6", 1_000_000, 128_000),
        ("claude-sonnet-5-5", 1_000_000, 128_000),
        ("gemini-1.5-pro-002", 2_097_152, 8192),
        ("gemini-2.0-flash-001", 1_048_576, 8192),
        ("gemini-2.5-pro", 1_048_576, 65_536),
        ("gemini-3.8-flash", 1_048_576, 65_536),
        ("deepseek-v4-pro", 1_048_576, 393_216),
        ("deepseek-v3.2", 131_072, None),
        ("grok-4-0709", 256_000, None),
        ("grok-4-fast", 2_000_000, None),
        ("grok-code-fast-1", 256_000, None),
        ("qwen3-coder-480b-a35b-instruct", 262_144, None),
        ("llama3.1:8b", 131_072, None),
        ("llama3:8b", 8192, None),
        ("mistral-large-2411", 131_072, None),
        ("codestral-2405", 32_768, None),
        ("mistral-small-2501", 32_768, None),
    ],
)
def test_context_windows_and_output_limits_are_known(
    model: str, window: int | None, max_output: int | None
) -> None:
    known = model_facts(model)
    assert (known.context_window, known.max_output) == (window, max_output)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("openai/gpt-4o", "gpt-4o"),
        ("ft:gpt-4o-2024-08-06:house::abc", "gpt-4o"),
        ("azure-gpt-4o-eu", "gpt-4o"),
        ("anthropic/claude-3.5-sonnet:beta", "claude-3-5-sonnet"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("claude-4-sonnet-20250514", "claude-sonnet-4"),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", "claude-opus-4-1"),
        ("claude-opus-4@20250514", "claude-opus-4"),
        ("CLAUDE-OPUS-4-5", "claude-opus-4-5"),
        ("google/gemini-2.5-flash-preview-05-20", "gemini-2.5-flash"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
        ("deepseek/deepseek-chat-v3-0324:free", "deepseek-v3"),
        ("x-ai/grok-4.1-fast", "grok-4-1-fast"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3"),
        ("meta.llama3-3-70b-instruct-v1:0", "llama-3.3"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss"),
    ],
)
def test_a_model_is_recognized_by_all_its_names(name: str, same: str) -> None:
    assert model_facts(name) == model_facts(same) != UNKNOWN


@pytest.mark.parametrize(
    "model",
    [
        "",
        "demo",
        "model",
        "mixtral-8x7b",
        "marco-o1:7b",
        "minigpt-4",
        "foo1",
        "gemini-2.5-flash-image",
    ],
)
def test_an_unknown_model_has_no_facts(model: str) -> None:
    assert model_facts(model) == UNKNOWN


@pytest.mark.parametrize(
    ("model", "older"),
    [
        ("gpt-5.9", "gpt-5"),
        ("claude-opus-4-9", "claude-opus-4"),
        ("claude-sonnet-4-7", "claude-sonnet-4"),
        ("claude-opus-6", "claude-opus-5"),
        ("grok-4.7", "grok-4"),
        ("llama-3.9", "llama-3"),
        ("llama-4-scout", "llama-3"),
        ("qwen3.5-27b", "qwen3-max"),
    ],
)
def test_a_new_version_does_not_match_an_older_one(model: str, older: str) -> None:
    assert model_facts(older).context_window is not None
    known = model_facts(model)
    assert (known.context_window, known.max_output, known.supports_prefill) == (None, None, False)


@pytest.mark.parametrize(
    ("model", "seconds"),
    [
        ("o1", 600),
        ("o1-preview", 600),
        ("o3", 600),
        ("deepseek-r1:70b", 600),
        ("deepseek-reasoner", 600),
        ("deepseek-v4-flash", 600),
        ("nvidia/llama-3.1-nemotron-ultra-253b-v1", 600),
        ("gpt-5-pro", 600),
        ("o3-mini", 300),
        ("grok-4", 300),
        ("grok-3-mini-beta", 300),
        ("grok-4-fast-reasoning", 300),
        ("grok-6", 300),
        ("claude-opus-4", 240),
        ("claude-opus-5-5", 240),
        ("claude-opus-9", 240),
        ("claude-sonnet-4", 180),
        ("claude-sonnet-9", 180),
        ("qwen3:32b", 180),
        ("qwen3-coder-30b", 180),
        ("gpt-4o", 0),
        ("gpt-5.5", 0),
        ("grok-3", 0),
        ("grok-4-fast-non-reasoning", 0),
        ("grok-4.20-0309-non-reasoning", 0),
        ("grok-9-non-reasoning", 0),
        ("claude-haiku-4-5", 0),
    ],
)
def test_slow_reasoning_models_have_a_longer_first_token_timeout(
    model: str, seconds: float
) -> None:
    assert model_facts(model).min_first_token_seconds == seconds


@pytest.mark.parametrize(
    ("model", "prefill"),
    [
        ("claude-3-opus", True),
        ("claude-3-5-haiku", True),
        ("claude-sonnet-4-5", True),
        ("claude-opus-4.5", True),
        ("claude-haiku-4-5", True),
        ("claude-opus-4-6", False),
        ("claude-sonnet-4-6", False),
        ("claude-opus-4-8", False),
        ("claude-sonnet-5", False),
        ("claude-haiku-5-5", False),
        ("gpt-4o", False),
        ("o3", False),
        ("gemini-2.5-pro", False),
        ("deepseek-v3", False),
    ],
)
def test_only_older_claude_models_support_prefill(model: str, prefill: bool) -> None:
    assert model_facts(model).supports_prefill is prefill


@pytest.mark.parametrize(
    ("model", "thinks"),
    [
        ("o3", True),
        ("gpt-5", True),
        ("gpt-6-sol", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4.1", False),
        ("claude-3-5-sonnet", False),
        ("claude-3-7-sonnet", True),
        ("claude-haiku-4-5", True),
        ("gemini-2.5-flash", True),
        ("gemini-2.0-flash", False),
        ("deepseek-v3", False),
        ("magistral-medium-2506", True),
        ("qwen3-coder-30b", False),
    ],
)
def test_reasoning_models_are_known(model: str, thinks: bool) -> None:
    assert model_facts(model).can_reason is thinks


@pytest.mark.parametrize(
    ("model", "announces"),
    [
        ("gpt-4o", True),
        ("openai/gpt-4.1-mini", True),
        ("gpt-5.2", True),
        ("gpt-5.2-codex", True),
        ("moonshotai/kimi-k3", True),
        ("glm-4.7", True),
        ("z-ai/glm-5", True),
        ("deepseek-v3.2", True),
        ("deepseek-chat", True),
        ("Qwen/Qwen2.5-7B-Instruct", True),
        ("qwen2.5:7b", True),
        ("qwen3-coder-plus", True),
        ("qwen3.6-35b-a3b", True),
        ("llama3.1:8b", True),
        ("meta-llama/Llama-3.3-70B-Instruct", True),
        ("mistral-small3.2:24b", True),
        ("mistral-7b-instruct", True),
        ("devstral:24b", True),
        ("gpt-5", False),
        ("gpt-5.5", False),
        ("gpt-4", False),
        ("o3", False),
        ("claude-sonnet-5-5", False),
        ("gemini-2.5-flash", False),
        ("mistral-large-2411", False),
        ("deepseek-reasoner", False),
        ("llama-4-scout", False),
        ("demo", False),
        ("scripted", False),
    ],
)
def test_models_that_may_only_announce_are_known(model: str, announces: bool) -> None:
    assert model_facts(model).may_only_announce is announces


@pytest.mark.parametrize("model", [OPENAI_MODEL, ANTHROPIC_MODEL])
def test_the_default_models_are_known(model: str) -> None:
    assert model_facts(model).context_window is not None
    assert model_facts(model).max_output is not None
