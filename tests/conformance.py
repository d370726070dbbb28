"""Every client scenario of the MCP conformance suite: `python -m tests.conformance [SCENARIO...]`.

The suite and a Node that it needs are installed with npm below `build/`. The exit code is 1 if a
scenario fails that is not on the list of declined features, or if one on the list passes.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "build" / "conformance"
_PACKAGES = ("@modelcontextprotocol/conformance@0.1.16", "node@24")
_INSTALL_SECONDS, _SCENARIO_SECONDS = 300.0, 60.0

DECLINED = {
    "auth/basic-cimd": "Holdfast has no public address for a document that describes it",
    "auth/scope-step-up": "more rights need a new login by a person",
    "auth/2025-03-26-oauth-metadata-backcompat": "metadata of another issuer than the server's",
    "auth/client-credentials-jwt": "signed assertions instead of a secret",
    "auth/cross-app-access-complete-flow": "tokens of an enterprise's identity provider",
}
"""Scenarios of features that docs/tools.md lists as not supported, each with the feature."""


def _install() -> list[str] | None:
    """Return the command of the suite; None if it cannot be installed."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    _FOLDER.mkdir(parents=True, exist_ok=True)
    program = _FOLDER / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    node = _FOLDER / "node_modules/node/bin/node"
    if not (program.exists() and node.exists()):
        installed = subprocess.run(
            [npm, "install", "--silent", "--no-save", *_PACKAGES],
            cwd=_FOLDER,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
        if installed.returncode:
            return None
    return [str(node), str(program)]


def _run(suite: list[str], scenario: str) -> tuple[bool, str]:
    """Run a scenario; return whether it passed, and the number of checks."""
    client = shlex.join(
        ["env", f"PYTHONPATH={_ROOT}", sys.executable, "-m", "tests.conformance_client"]
    )
    done = subprocess.run(
        [*suite, "client", "--scenario", scenario, "--command", client],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SCENARIO_SECONDS,
        check=False,
        cwd=_FOLDER,
    )
    counted = re.search(r"Passed: (\d+/\d+)", done.stdout)
    return "OVERALL: PASSED" in done.stdout, counted[1] if counted else "no checks"


def main(wanted: list[str]) -> int:
    """Run the scenarios and print a line for each."""
    suite = _install()
    if suite is None:
        print("SKIPPED: the conformance suite cannot be installed here; it needs npm")  # noqa: T201
        return 0
    listed = subprocess.run(
        [*suite, "list", "--client"],
        capture_output=True,
        text=True,
        timeout=_SCENARIO_SECONDS,
        check=True,
    )
    surprises = 0
    for scenario in wanted or re.findall(r"^\s+- (\S+)", listed.stdout, re.MULTILINE):
        passed, checks = _run(suite, scenario)
        declined = DECLINED.get(scenario, "")
        surprises += passed == bool(declined)
        verdict = "passed" if passed else f"declined: {declined}" if declined else "FAILED"
        print(f"{scenario:45} {checks:>9}  {verdict}", flush=True)  # noqa: T201
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
