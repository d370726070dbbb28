"""LiteLLM's proxy between the gateway and the model service, in three protocols."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from tests.clients.kit import Started, free_port, python_program
from tests.clients.scripted import Request
from tests.e2e.api_kit import KEY, user
from tests.e2e.daemon import Daemon
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import ModelServer

_START_SECONDS = 180.0
_CONFIG = """
model_list:
  - model_name: scripted
    litellm_params: {{model: openai/scripted, api_base: "{url}", api_key: none}}
litellm_settings: {{num_retries: 0}}
router_settings: {{disable_cooldowns: true}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""
_TOO_LONG = "This model's maximum context length is 8192 tokens."

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Proxy(msgspec.Struct, kw_only=True):
    """LiteLLM's proxy and the model service behind it."""

    url: str
    model: ModelServer


def answer(request: Request) -> Script:
    """Ask the agent for the time, then answer; the words of the person choose an error."""
    said = json.dumps(request)
    if "too many" in said:
        return 'S429:{"retry-after":"3000"}"Rate limit reached."'
    if "too long" in said:
        return f'S400"{_TOO_LONG}"'
    if "not allowed" in said:
        return 'S401"Incorrect API key provided."'
    return ok("It is late.") if "(UTC+0000)" in said else calls(("c1", "current_time", "{}"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    programs = python_program("litellm", "litellm[proxy]==1.106.2")
    folder = tmp_path_factory.mktemp("litellm-proxy")
    port = free_port()
    env = {
        "HOME": str(folder),
        "PATH": f"{programs}:/usr/bin:/bin",
    }
    async with ModelServer(answer) as model:
        config = folder / "litellm.yaml"
        config.write_text(_CONFIG.format(url=model.url))
        start = (programs / "litellm", "--config", config, "--host", "127.0.0.1", "--port", port)
        async with Started(*map(str, start), env=env, cwd=folder) as program:
            await program.says("Application startup complete", _START_SECONDS)
            yield Proxy(url=f"http://127.0.0.1:{port}", model=model)


def behind(proxy: Proxy, home: Path, provider: str) -> Daemon:
    """Return a daemon whose model service is the proxy."""
    base = proxy.url if provider == "anthropic" else f"{proxy.url}/v1"
    return Daemon(
        home,
        f'model.provider="{provider}"',
        'model.name="scripted"',
        f'model.base_url="{base}"',
        'model.api_key="sk-none"',
        f'http.api_key="{KEY}"',
    )


def client_of(daemon: Daemon) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key=KEY, max_retries=0, timeout=60)


PROVIDERS = pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])


@PROVIDERS
async def test_an_answer_with_a_tool_comes_through_the_proxy(
    proxy: Proxy, tmp_path: Path, provider: str
) -> None:
    async with behind(proxy, tmp_path / "home", provider) as daemon, client_of(daemon) as client:
        whole = await client.chat.completions.create(
            model="scripted", messages=user("What time is it?")
        )
        stream = await client.chat.completions.create(
            model="scripted", messages=user("What time is it?"), stream=True
        )
        pieces = [each.choices[0].delta.content or "" async for each in stream if each.choices]
    assert whole.choices[0].message.content == "It is late."
    assert "".join(pieces) == "It is late."


@PROVIDERS
@pytest.mark.parametrize(
    ("said", "kind", "code"),
    [
        ("too many", openai.RateLimitError, "rate_limit_exceeded"),
        ("too long", openai.BadRequestError, "context_length_exceeded"),
        ("not allowed", openai.APIStatusError, "turn_failed"),
    ],
)
async def test_an_error_keeps_its_class_through_the_proxy(
    proxy: Proxy,
    tmp_path: Path,
    provider: str,
    said: str,
    kind: type[openai.APIStatusError],
    code: str,
) -> None:
    async with behind(proxy, tmp_path / "home", provider) as daemon, client_of(daemon) as client:
        with pytest.raises(kind) as raised:
            await client.chat.completions.create(model="scripted", messages=user(said))
    assert raised.value.code == code
