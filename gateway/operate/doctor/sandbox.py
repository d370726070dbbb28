"""The sandbox: whether bubblewrap is there, and can do on this machine what it is for."""

import asyncio
import shutil
from collections.abc import Sequence

from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, fail, ok, warn

TIMEOUT_SECONDS = 5.0
_PROGRAM = "bwrap"
_INSTALL_HINT = "Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`)."
_ALLOW_HINT = (
    "Allow unprivileged user namespaces: `sysctl kernel.unprivileged_userns_clone=1`; on Ubuntu "
    "24.04 and later an AppArmor profile for bwrap."
)
# All that is there may be read, no network, nothing outlives it: as small as a sandbox can be.
_TRIAL_ARGUMENTS = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--", "true")


async def check_sandbox(context: DoctorContext) -> Sequence[Finding]:
    """Run it once."""
    tools = context.settings.tools
    used = "shell" in tools.enabled
    if tools.shell.sandbox == "none":
        if not used:
            return [ok("sandbox", "switched off, and no tool needs it")]
        unconfined = "commands of the agent run with the daemon's own rights (tools.shell.sandbox)"
        return [warn("sandbox", unconfined, 'Set tools.shell.sandbox = "auto".')]
    program = shutil.which(_PROGRAM, path=context.environ.get("PATH"))
    if program is None:
        if used:
            missing = "bubblewrap is not installed, so no command of the agent runs"
            return [fail("sandbox", missing, _INSTALL_HINT)]
        return [ok("sandbox", "bubblewrap is not installed; only shell commands would need it")]
    said = await _try_sandbox(program)
    if said is None:
        return [ok("sandbox", "bubblewrap works")]
    broken = f"bubblewrap does not work here: {said}"
    return [fail("sandbox", broken, _ALLOW_HINT) if used else warn("sandbox", broken, _ALLOW_HINT)]


async def _try_sandbox(program: str) -> str | None:
    """Run nothing in a sandbox; gives what went wrong."""
    process = await asyncio.create_subprocess_exec(
        program,
        *_TRIAL_ARGUMENTS,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            _, said = await process.communicate()
    except TimeoutError:
        return f"it did not end within {TIMEOUT_SECONDS:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return None
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("bwrap: ") if lines else f"it ended with {process.returncode}"
