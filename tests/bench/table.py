"""The table of DESIGN 6: the gateway beside the floor, which does the least that does the same job.

`python -m tests.bench.table` takes about ten minutes, with `--quick` less than two. Only ratios
count, for both run in turns on the same core; absolute figures tell about the machine.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import measures
from tests.bench.contestants import Cores, Floor, Ours, entered, used_by_others
from tests.bench.measures import QUICK, Bench, Sizes
from tests.bench.verdicts import Row, heading, written


async def run(
    sizes: Sizes, cores: Cores, folder: Path, only: str = ""
) -> tuple[list[Row], list[str]]:
    """Measure; gives the rows and what went wrong on the way."""
    async with entered(Ours(), folder, cores) as ours, entered(Floor(), folder, cores) as floor:
        bench = Bench(ours, floor, sizes)
        rows = []
        sys.stdout.write(heading() + "\n")
        others, began = used_by_others(), time.monotonic()
        async for row in measures.rows(bench, only):
            sys.stdout.write(written(row) + "\n")
            sys.stdout.flush()
            rows.append(row)
        share = (used_by_others() - others) / (time.monotonic() - began) / (os.cpu_count() or 1)
        sys.stdout.write(f"others had the cores for {100 * share:.0f} % of the time\n")
        return rows, bench.faults


def main() -> int:
    """Print the table; a goal that is not met is no failure, an unanswered message is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--only", default="", help="rows of this measurement, such as `saturation`")
    chosen = parser.parse_args()
    sizes = QUICK if chosen.quick else Sizes()
    with tempfile.TemporaryDirectory() as folder:
        cores = Cores.of_this_machine()
        _, faults = asyncio.run(run(sizes, cores, Path(folder), chosen.only))
    for fault in faults:
        sys.stdout.write(f"! {fault}\n")
    return int(any(fault.startswith("ours") for fault in faults))


if __name__ == "__main__":
    sys.exit(main())
