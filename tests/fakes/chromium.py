"""The browser of the tests: which program, and with which arguments."""

import shutil
from pathlib import Path

# The shell draws no window and takes half the CPU.
_PROGRAMS = ("chromium-headless-shell", "chromium")
CHROMIUM = Path(next(filter(None, map(shutil.which, _PROGRAMS)), "/usr/bin/chromium"))
HAVE_CHROMIUM = CHROMIUM.exists()
ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
