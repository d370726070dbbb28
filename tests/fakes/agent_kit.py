"""For tests of the agent: a journal in memory, tools with visible effects, clocks to the scale."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from agent.attempt import AttemptResult
from agent.model.learned import LearnedTarget, LearnedTargets
from agent.model.usage import UsageEstimate
from agent.providers.registry import Target, build_provider
from agent.settings import ProviderName, TargetSettings, Timeouts
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from agent.tools.drafts import DraftStore
from sessions.records import Attachment, Message, ToolCall
from sessions.values.secret import Secret
from tests.fakes.dialects.steps import ProtocolName

SCALED = Timeouts(
    connect=0.5,
    first_token=1.0,
    gap_text=0.6,
    gap_tool=0.8,
    gap_reasoning=0.8,
    wire_dead=0.5,
    lifetime=5.0,
    backoff=0.01,
)


class LoopClock:
    """The running loop's own time; the hour stands still."""

    def now(self) -> int:
        return 1_795_003_200_000

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


_PROVIDERS: dict[ProtocolName, ProviderName] = {
    "chat": "openai",
    "anthropic": "anthropic",
    "responses": "openai-responses",
}


def settings_for(protocol: ProtocolName, url: str, timeouts: Timeouts = SCALED) -> TargetSettings:
    """Settings for a model server that speaks the protocol at `url` (as `ModelServer.url`)."""
    return TargetSettings(
        provider=_PROVIDERS[protocol],
        name="scripted",
        # Anthropic's SDK is given the root and adds /v1 itself.
        base_url=url.removesuffix("/v1") if protocol == "anthropic" else url,
        api_key=Secret("sk-test"),
        timeouts=timeouts,
    )


def target_for(protocol: ProtocolName, url: str, timeouts: Timeouts = SCALED) -> Target:
    settings = settings_for(protocol, url, timeouts)
    return Target(build_provider(settings), "scripted", settings)


def openai_settings(url: str, timeouts: Timeouts = SCALED) -> TargetSettings:
    return settings_for("chat", url, timeouts)


def openai_target(url: str, timeouts: Timeouts = SCALED) -> Target:
    return target_for("chat", url, timeouts)


def learned_of(experience: LearnedTargets, target: Target) -> LearnedTarget:
    """What has been learned of a target, under the key that the loop uses."""
    return experience.get(target.provider.name, target.settings.base_url or "", target.model)


def drafts_in(folder: Path) -> DraftStore:
    """Drafts of unfinished files, in a folder that need not exist yet."""
    return DraftStore(folder / "drafts", LoopClock())


class MemoryJournal:
    """Keeps what a turn wrote down, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.attempts: list[AttemptResult | None] = []
        self.rows: list[Message] = []
        self.brought: dict[str, int] = {}  # which request brought a call that was started
        self.summaries: list[tuple[int, str]] = []  # rows kept, and the words for the others
        self.judged = asyncio.Event()  # a request is over
        self.refuses_tools = False
        self.reserves = False  # asks for the estimate of each request, as a budget does

    async def attempt_started(
        self, number: int, target: str, need: Callable[[], UsageEstimate]
    ) -> None:
        self.log.append(f"attempt {number} {target}")
        self.attempts.append(None)
        if self.reserves:
            need()

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        self.log.append(f"attempt {number} {result.verdict_name}")
        self.attempts[number - 1] = result
        self.judged.set()

    async def step_done(self, message: Message) -> None:
        self.log.append("step")
        self.rows.append(message)

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        if self.refuses_tools:
            msg = "disk full"
            raise OSError(msg)
        self.log.append(f"started {call.id} {risk}")
        self.brought[call.id] = attempt

    async def tool_finished(
        self, call: ToolCall, ok: bool, result: str, files: tuple[Attachment, ...]
    ) -> None:
        self.log.append(f"finished {call.id} {'ok' if ok else 'failed'}")
        self.rows.append(Message("tool", result, tool_call_id=call.id, files=files))

    async def compacted(self, keep: int, summary: str) -> None:
        self.log.append("compacted")
        self.summaries.append((keep, summary))

    @property
    def verdicts(self) -> list[str]:
        return [attempt.verdict_name if attempt else "open" for attempt in self.attempts]


class Workshop:
    """Tools whose effects can be seen."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.keys: list[str] = []
        self.entered = asyncio.Event()  # a tool that waits has begun
        self.release = asyncio.Event()  # lets it go on
        self.ended: list[str] = []  # how waiting tools ended
        self.at_once = 0  # most that ran side by side
        self._inside = 0

    def tools(self) -> tuple[Tool, ...]:
        shop = self

        @tool(risk=Risk.READ, parallel=True, label="path")
        async def read(_context: ToolContext, path: str) -> str:
            """Read a file."""
            shop._inside += 1
            shop.at_once = max(shop.at_once, shop._inside)
            await asyncio.sleep(0)
            shop._inside -= 1
            shop.effects.append(f"read {path}")
            return f"content of {path}"

        @tool(risk=Risk.WRITE, emoji="💶", label="amount")
        async def pay(context: ToolContext, amount: int) -> str:
            """Pay."""
            shop.keys.append(context.idempotency_key)
            shop.effects.append(f"pay {amount}")
            return f"paid {amount}"

        @tool(risk=Risk.READ)
        async def noop(_context: ToolContext) -> str:
            """Do nothing."""
            return "nothing"

        @tool(risk=Risk.WRITE, timeout=0.05)
        async def slow(_context: ToolContext) -> str:
            """Take too long."""
            return await shop._wait()

        @tool(risk=Risk.WRITE)
        async def sleepy(_context: ToolContext) -> str:
            """Wait until released."""
            return await shop._wait()

        @tool(risk=Risk.WRITE, timeout=0.05)
        async def stubborn(_context: ToolContext) -> str:
            """Refuse to be cancelled."""
            shop.entered.set()
            while not shop.release.is_set():
                try:
                    await shop.release.wait()
                except asyncio.CancelledError:
                    shop.ended.append("refused to end")
            return "late"

        @tool(risk=Risk.READ)
        async def broken(_context: ToolContext) -> str:
            """Fail."""
            msg = "no luck"
            raise RuntimeError(msg)

        @tool(risk=Risk.READ)
        async def long(_context: ToolContext, size: int) -> str:
            """Say a lot."""
            return "x" * size

        @tool(risk=Risk.EXEC)
        async def shell(_context: ToolContext, command: str) -> str:
            """Run a command."""
            shop.effects.append(f"shell {command}")
            return "ran"

        return (read, pay, noop, slow, sleepy, stubborn, broken, long, shell)

    async def _wait(self) -> str:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return "woke up"


WORKSPACE = Path("/nonexistent")
