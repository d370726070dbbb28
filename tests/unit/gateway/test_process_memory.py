"""Resident memory of a process after a busy phase."""

import subprocess
import sys

import pytest

_BUSY = """
import sys, threading
from gateway.process.memory import limit_fragmentation

def megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

if sys.argv[1] == "together":
    limit_fragmentation()
kept = []

def be_busy():
    large = []
    for number in range(20):
        large.append(bytearray(2_000_000))
        kept.append(bytes(2_000))  # a small block stays behind each large one
        if number == 0:
            large.clear()

for _ in range(3):
    threads = [threading.Thread(target=be_busy) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print(megabytes())
"""


def left(how: str) -> float:
    ran = subprocess.run(
        [sys.executable, "-c", _BUSY, how], capture_output=True, text=True, check=True
    )
    return float(ran.stdout)


@pytest.mark.process
def test_large_blocks_are_returned_and_threads_share_one_arena() -> None:
    assert left("together") + 20 < left("as usual")
