"""The sandbox: whether bubblewrap is installed and works on this machine."""

import asyncio
import shutil
from collections.abc import Sequence

from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, fail, ok, warn

_TIMEOUT_SECONDS = 5.0
_PROGRAM = "bwrap"
_INSTALL_HINT = "Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`)."
_ALLOW_HINT = (
    "Allow unprivileged user namespaces: `sysctl kernel.unprivileged_userns_clone=1`; on Ubuntu "
    "24.04 and later an AppArmor profile for bwrap."
)
# The smallest sandbox: everything readable, no network, no process outlives it.
_TRIAL_ARGUMENTS = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--", "true")


async def check_sandbox(context: DoctorContext) -> Sequence[Finding]:
    """Run bubblewrap once."""
    tools = context.settings.tools
    used = "shell" in tools.enabled
    if tools.shell.sandbox == "none":
        if not used:
            return [ok("sandbox", "off, and no tool needs it")]
        unconfined = "the agent's commands run with all rights of the daemon (tools.shell.sandbox)"
        return [warn("sandbox", unconfined, 'Set tools.shell.sandbox = "auto".')]
    program = shutil.which(_PROGRAM, path=context.environ.get("PATH"))
    if program is None:
        if used:
            missing = "bubblewrap is not installed, so the agent cannot run commands"
            return [fail("sandbox", missing, _INSTALL_HINT)]
        return [ok("sandbox", "bubblewrap is not installed; only shell commands would need it")]
    error = await _try_sandbox(program)
    if error is None:
        return [ok("sandbox", "bubblewrap works")]
    broken = f"bubblewrap does not work here: {error}"
    return [fail("sandbox", broken, _ALLOW_HINT) if used else warn("sandbox", broken, _ALLOW_HINT)]


async def _try_sandbox(program: str) -> str | None:
    """Run `true` in a sandbox; return the error, or None."""
    process = await asyncio.create_subprocess_exec(
        program,
        *_TRIAL_ARGUMENTS,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            _, error = await process.communicate()
    except TimeoutError:
        return f"it did not finish within {_TIMEOUT_SECONDS:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return None
    lines = error.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("bwrap: ") if lines else f"exit code {process.returncode}"
