"""Tools of another distribution: what they do lasts, and they can end the process that runs them.

Tests put a copy of this file where a daemon finds it. Beside the copy lie `effects`, a line for
everything that was done, and switches: a file `kill-before-5` ends the process just before 5 is
paid, `kill-after-5` just behind it. A switch works once.
"""

import asyncio
import os
import signal
from pathlib import Path

from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool

HERE = Path(__file__).parent
EFFECTS = "effects"
_MOMENT = 0.02  # seconds in which a kill from outside may come


@tool(risk=Risk.WRITE, emoji="💶", label="amount")
async def pay(_context: ToolContext, amount: int) -> str:
    """Pay.

    Args:
        _context: Not part of the call.
        amount: How much.
    """
    await asyncio.sleep(_MOMENT)
    _die_at(f"before-{amount}")
    _note(f"pay {amount}")
    _die_at(f"after-{amount}")
    await asyncio.sleep(_MOMENT)
    return f"paid {amount}"


def _note(what: str) -> None:
    with (HERE / EFFECTS).open("a") as file:
        file.write(f"{what}\n")
        file.flush()
        os.fsync(file.fileno())


def _die_at(moment: str) -> None:
    switch = HERE / f"kill-{moment}"
    if switch.exists():
        switch.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
