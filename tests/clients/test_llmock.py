"""llmock as the model: each of its faults, judged by its own verdict about its client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.clients.kit import Program, Started, python_program
from tests.clients.model_services import DIALECTS, Answer, Api, gateway_for, model_settings

WORDS = "All of this is well, and here is the end of it."
FAST = (
    "model.timeouts.backoff=0.3",
    "model.timeouts.first_token=4",
    "model.timeouts.gap_text=1.5",
    "model.timeouts.gap_tool=1.5",
)

Behaviour = dict[str, Any]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Faults of the server, and the fate of one question."""

    name: str
    faults: Sequence[Behaviour]
    question: str = "Say something."
    status: int = 200
    code: str | None = None
    attempts: int | None = None  # None: any number that the verdict accepts
    text: str | None = WORDS  # None: any text
    events: Sequence[str] = ()  # tools that run


def reply(text: str = WORDS, times: int | None = None) -> Behaviour:
    return {"type": "reply", "text": text, "times": times}


def fail(status: int, times: int | None = 1, **more: Any) -> list[Behaviour]:
    return [{"type": "fail", "status": status, "times": times, **more}, reply()]


def cut(kind: str, after: int, times: int | None = 1, **more: Any) -> list[Behaviour]:
    fault = {"type": "stream_fault", "kind": kind, "after_chunks": after, "times": times, **more}
    return [fault, reply()]


TOO_LONG = {
    "code": "context_length_exceeded",
    "message": "This model's maximum context length is 100 tokens. However, your messages"
    " resulted in 9000 tokens.",
}

STATUSES = [
    Scenario(name="429 with a wait", faults=fail(429, 2, retry_after=1), attempts=3),
    Scenario(name="503 with a wait", faults=fail(503, 1, retry_after=1), attempts=2),
    *(
        Scenario(name=f"{status} twice", faults=fail(status, 2), attempts=3)
        for status in (408, 409, 500, 502, 503, 504, 529)
    ),
    Scenario(
        name="429 for ever",
        faults=fail(429, None, retry_after=1),
        status=429,
        code="rate_limit_exceeded",
        attempts=3,
    ),
    Scenario(name="500 for ever", faults=fail(500, None), status=503, code="turn_failed"),
    Scenario(name="401", faults=fail(401), status=503, code="turn_failed", attempts=1),
    Scenario(name="403", faults=fail(403), status=503, code="turn_failed", attempts=1),
    Scenario(name="400", faults=fail(400), status=400, code="turn_failed", attempts=1),
    Scenario(name="404", faults=fail(404), status=400, code="turn_failed", attempts=1),
    Scenario(name="422", faults=fail(422), status=400, code="turn_failed", attempts=1),
    Scenario(
        name="402",
        faults=fail(402, message="You exceeded your current quota", code="insufficient_quota"),
        status=429,
        code="insufficient_quota",
        attempts=1,
    ),
    Scenario(
        name="context too long",
        faults=fail(400, None, **TOO_LONG),
        status=400,
        code="context_length_exceeded",
    ),
]
STREAMS = [
    Scenario(name="slow first token", faults=[{"type": "slow_first_token", "seconds": 1}, reply()]),
    Scenario(name="late response", faults=[{"type": "delay", "seconds": 1}, reply()]),
    *(
        Scenario(name=f"{kind} after {after}", faults=cut(kind, after))
        for kind in ("disconnect", "truncate", "malformed")
        for after in (0, 1, 2, 3, 7)
    ),
    *(
        Scenario(name=f"stall after {after}", faults=cut("stall", after, stall_seconds=20))
        for after in (0, 5)
    ),
    # After three streams without output the answer is requested without a stream.
    Scenario(name="disconnect of every stream", faults=cut("disconnect", 0, None), attempts=4),
]
TOOLS = [
    Scenario(
        name="a loop of its own",
        question="List the files in the current folder: list_files",
        faults=[],
        text=None,
        events=["list_files"],
    ),
    Scenario(
        name="unknown tool",
        question="List the files in the present folder: list_files",
        faults=[{"type": "tool_fault", "kind": "unknown_tool"}],
        text=None,
    ),
    Scenario(
        name="broken arguments",
        question="Read a file: read_file",
        faults=[{"type": "tool_fault", "kind": "malformed_arguments"}],
        text=None,
    ),
]


class Llmock:
    """The server's own control."""

    def __init__(self, url: str, http: aiohttp.ClientSession, program: Program) -> None:
        self.url = url
        self.program = program
        self._http = http

    def base(self, provider: str) -> str:
        return f"{self.url}/anthropic" if provider == "anthropic" else f"{self.url}/v1"

    async def begin(self, faults: Sequence[Behaviour]) -> None:
        """Forget all requests, and queue these faults."""
        async with self._http.post(f"{self.url}/_llmock/reset") as answer:
            assert answer.status == 200
        if faults:
            body = {"behaviors": list(faults)}
            async with self._http.post(f"{self.url}/_llmock/scenario", json=body) as answer:
                assert answer.status == 201, await answer.text()

    async def requests(self) -> list[dict[str, Any]]:
        async with self._http.get(f"{self.url}/_llmock/requests") as answer:
            return list((await answer.json())["requests"])

    async def findings(self, failed: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return the complaints of the verdict that are true.

        The verdict takes only an equal request for a repetition. After some text our next request
        asks for the rest of it instead: that request must be there. Nor does the verdict know that
        a question failed in the end, and that this was said.
        """
        async with self._http.get(f"{self.url}/_llmock/verdict") as answer:
            found = (await answer.json())["findings"]
        made = [each for each in await self.requests() if each["body"]]
        return [each for each in found if not _was_continued(each, made, failed)]


def _was_continued(
    finding: dict[str, Any], made: list[dict[str, Any]], failed: Collection[str]
) -> bool:
    cut_ones = {"truncated_stream_accepted", "malformed_chunk_ignored", "gave_up"}
    if finding["code"] not in cut_ones:
        return False
    last = finding["requests"][-1]
    cut_at = next(at for at, each in enumerate(made) if each["seq"] == last)
    question = _question(made[cut_at]["body"])
    later = [_question(each["body"]) for each in made[cut_at + 1 :]]
    return question.split("\n")[0] in failed or any(
        each == question or each.startswith(f"{question}\n") for each in later
    )


def _question(body: dict[str, Any]) -> str:
    """Return the first words of the user, to which a later request may have added others."""
    messages = body.get("messages") or body["input"]
    content = next(each["content"] for each in messages if each.get("role") == "user")
    return content if isinstance(content, str) else "\n\n".join(part["text"] for part in content)


@contextlib.asynccontextmanager
async def llmock(*options: str) -> AsyncIterator[Llmock]:
    program = python_program("llmock", "llmock==0.2.2") / "llmock"
    command: list[str | Path] = [program, "serve", "--port", "0", *options]
    async with Started(*command) as started, aiohttp.ClientSession() as http:
        line = await started.says("Uvicorn running on")
        yield Llmock(line.split(" on ")[1].split()[0], http, started)


def settings(provider: str, server: Llmock) -> list[str]:
    name = "claude-3-opus-20240229" if provider == "anthropic" else "gpt-4o"
    return [*model_settings(provider, server.base(provider), name), *FAST]


def judge(scenario: Scenario, answer: Answer) -> None:
    """Compare an answer with its scenario; a stream that has begun fails at its end."""
    assert answer.is_honest, answer
    began = answer.status == 200 and answer.finish == "error"
    assert began or answer.status == scenario.status, answer
    assert answer.error.get("code") == scenario.code, answer
    if scenario.status == 200:
        assert answer.is_whole, answer
        assert scenario.text is None or answer.text == scenario.text


@pytest.mark.parametrize("provider", DIALECTS)
@pytest.mark.parametrize(
    ("scenarios", "stream"),
    [(STATUSES, False), (STREAMS, True), (TOOLS, True)],
    ids=["statuses", "streams", "tools"],
)
async def test_each_fault_ends_in_an_answer_or_an_honest_error(
    provider: str,
    scenarios: list[Scenario],
    stream: bool,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    async with llmock() as server, gateway_for(tmp_path, *settings(provider, server)) as api:
        for scenario in scenarios:
            with subtests.test(scenario.name):
                await server.begin(scenario.faults)
                answer = await api.ask(f"{scenario.question} ({scenario.name})", stream=stream)
                judge(scenario, answer)
                made = await server.requests()
                assert scenario.attempts is None or len(made) == scenario.attempts, len(made)
                assert await server.findings() == []


async def ask_all(api: Api, count: int, question: str) -> list[Answer]:
    """Ask as many people at once would, each in a conversation of its own."""
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(api.ask(f"{question} {number}", stream=number % 2 == 0))
            for number in range(count)
        ]
    return [each.result() for each in asked]


async def test_a_rate_limit_is_kept_by_many_people_at_once(tmp_path: Path) -> None:
    async with (
        llmock("--rpm", "20", "--tool-mode", "off", "--response-style", "hello") as server,
        gateway_for(tmp_path, *settings("openai", server)) as api,
    ):
        await server.begin([])
        answers = await ask_all(api, 24, "Say something to person")
        findings = await server.findings()
    assert findings == []
    assert all(answer.is_honest for answer in answers), answers
    assert sum(answer.is_whole for answer in answers) >= 20
    codes = {answer.error.get("code") for answer in answers if not answer.is_whole}
    assert codes <= {"rate_limit_exceeded"}


@pytest.mark.parametrize("provider", DIALECTS)
async def test_random_faults_end_in_answers_or_honest_errors(provider: str, tmp_path: Path) -> None:
    faults = [f"--stream-fault={kind}=0.1" for kind in ("disconnect", "truncate", "malformed")]
    errors = [f"--error-rate={status}=0.1" for status in (429, 500, 503)]
    async with (
        llmock(*faults, *errors, "--tool-mode", "auto") as server,
        gateway_for(tmp_path, *settings(provider, server)) as api,
    ):
        question = "List the files of the folder: list_files, for person"
        answers = await ask_all(api, 16, question)
        failed = [f"{question} {at}" for at, each in enumerate(answers) if not each.is_whole]
        findings = await server.findings(failed)
    # Warnings count too much here: a chunk that is damaged after the end of an answer, or two equal
    # pauses after different faults.
    errors_found = [each for each in findings if each["severity"] == "error"]
    assert errors_found == []
    assert all(answer.is_honest for answer in answers), answers
    assert sum(answer.is_whole for answer in answers) >= 8
