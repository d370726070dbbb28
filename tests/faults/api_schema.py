"""Ask the API of a daemon what its own document promises, and what it forbids, over loopback.

schemathesis reads `/openapi.json`, sends what fits it and what does not, and holds every answer
against it: status, media type, shape, headers, who is let in. `make api-fuzz` runs it at length.
"""

import argparse
import asyncio
import contextlib
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from gateway.config.loader import read_environment
from tests.e2e.daemon import Daemon
from tests.fakes.model_server import ModelServer, echo

ROOT = Path(__file__).parents[2]
KEY = "key-of-the-api"
PHASES = ("examples", "coverage", "fuzzing")
ODD = re.compile(r"not stored|Traceback|\bfailed\b| error ", re.IGNORECASE)
"""What a log of requests alone never says."""


class Report(msgspec.Struct, frozen=True):
    """What came of it."""

    code: int
    text: str
    odd: Sequence[str]  # of the daemon's log

    @property
    def cases(self) -> int:
        found = re.search(r"(\d+) generated, (\d+) passed", self.text)
        return int(found[1]) if found and found[1] == found[2] else 0


@contextlib.asynccontextmanager
async def served(
    model: ModelServer, home: Path, *more: str, env: dict[str, str] | None = None
) -> AsyncIterator[Daemon]:
    """A daemon that answers with a scripted model, as fast as it can."""
    settings = (
        "model.provider=openai",
        "model.name=scripted",
        "model.api_key=sk-none",
        f"model.base_url={model.url}",
        f"http.api_key={KEY}",
        "limits.messages_per_minute=1000000",
        *more,
    )
    async with Daemon(home, *settings, env=env, warm=True) as daemon:
        yield daemon
        await daemon.stop()


async def ask(
    examples: int,
    seed: int,
    home: Path,
    phases: Sequence[str] = PHASES,
    mode: str = "all",
    *,
    every: int = 1,
) -> Report:
    """Run schemathesis against a daemon of its own; of the cases of `coverage` send each n-th."""
    async with ModelServer(echo()) as model, served(model, home) as daemon:
        running = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("schemathesis")),
            *("run", f"{daemon.url}/openapi.json", "--header", f"Authorization: Bearer {KEY}"),
            *("--phases", ",".join(phases), "--mode", mode, "--max-examples", str(examples)),
            *("--seed", str(seed), "--request-timeout", "30", "--no-color"),
            *("--continue-on-failure", "--max-failures", "20", "--generation-database", "none"),
            cwd=home,
            env={
                **read_environment(),
                "PYTHONPATH": str(ROOT),
                "SCHEMATHESIS_HOOKS": "tests.e2e.schemathesis_hooks",
                "SCHEMATHESIS_EVERY": str(every),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            text, _ = await running.communicate()
        finally:
            if running.returncode is None:
                running.kill()
    assert running.returncode is not None
    return Report(running.returncode, text.decode(), [x for x in daemon.said if ODD.search(x)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="of each address")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        report = asyncio.run(ask(chosen.examples, chosen.seed, Path(home)))
    sys.stdout.write("\n".join([report.text, *report.odd, ""]))
    sys.exit(report.code or bool(report.odd))


if __name__ == "__main__":
    main()
