"""LiteLLM's proxy between the gateway and a model service, by each of its three protocols."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clients.kit import Started, free_port, python_program
from tests.clients.model_services import DIALECTS, documented, gateway_for
from tests.clients.test_llmock import FAST, Llmock, Scenario, fail, judge, llmock, reply

CONFIG = """
model_list:
  - model_name: assistant
    litellm_params:
      model: openai/gpt-4o
      api_base: {base}
      api_key: sk-none
litellm_settings:
  num_retries: 0
router_settings:
  num_retries: 0
  disable_cooldowns: true
general_settings:
  dangerously_permit_weak_or_unset_master_key: true
"""
TOO_LONG = {
    "code": "context_length_exceeded",
    "message": "This model's maximum context length is 100 tokens. However, your messages"
    " resulted in 9000 tokens.",
}
QUOTA = {
    "code": "insufficient_quota",
    "message": "You exceeded your current quota, please check your plan and billing details.",
}
SCENARIOS = [
    Scenario(name="an answer", faults=[reply()]),
    Scenario(
        name="a tool",
        question="List the files in the current folder: list_files",
        faults=[],
        text=None,
    ),
    Scenario(
        name="too many requests",
        faults=fail(429, None, retry_after=1),
        status=429,
        code="rate_limit_exceeded",
    ),
    Scenario(
        name="no quota", faults=fail(429, None, **QUOTA), status=429, code="insufficient_quota"
    ),
    Scenario(
        name="too long",
        faults=fail(400, None, **TOO_LONG),
        status=400,
        code="context_length_exceeded",
    ),
    Scenario(name="refused", faults=fail(400, None), status=400, code="turn_failed"),
    Scenario(name="broken", faults=fail(500, None), status=503, code="turn_failed"),
]


@contextlib.asynccontextmanager
async def litellm(folder: Path, upstream: Llmock) -> AsyncIterator[str]:
    bin_ = python_program("litellm", "litellm[proxy]==1.106.2")
    config = folder / "litellm.yaml"
    config.write_text(CONFIG.format(base=upstream.base("openai")))
    port = str(free_port())
    command: list[str | Path] = [
        bin_ / "litellm",
        "--config",
        config,
        "--host",
        "127.0.0.1",
        "--port",
        port,
    ]
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    path = {"PATH": f"{bin_}:/usr/bin:/bin"}
    async with Started(*command, env=offline | path, cwd=folder) as started:
        await started.says("Uvicorn running on", 240)
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("provider", DIALECTS)
async def test_answers_and_errors_keep_their_class(
    provider: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    async with llmock() as upstream, litellm(tmp_path, upstream) as address:
        settings = documented("LiteLLM", provider, address)
        async with gateway_for(tmp_path / "home", *settings, *FAST) as api:
            for stream in (False, True):
                for scenario in SCENARIOS:
                    with subtests.test(f"{scenario.name}, stream: {stream}"):
                        await upstream.begin(scenario.faults)
                        answer = await api.ask(
                            f"{scenario.question} ({scenario.name})", stream=stream
                        )
                        judge(scenario, answer)
