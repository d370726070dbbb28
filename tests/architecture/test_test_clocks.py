"""A rule about the clocks of gateways in tests.

The loops of tests have a time of their own. A gateway that measures its waits by the machine's clock
and sleeps by such a loop wakes at the wrong moments, and its tests fail when the machine is busy.
"""

import ast

from scripts.code_figures import Module

MACHINE_TIME = {
    "tests/bench/streams.py": "a process of its own, with the loop of asyncio",
    "tests/e2e/page/test_page_work.py": "a browser, which has the machine's time",
    "tests/fakes/stuck_daemon.py": "a process of its own, with the loop of asyncio",
}
"""Files whose gateways use the machine's clock, and why."""


def builds_gateway_without_clock(module: Module) -> bool:
    return any(
        isinstance(call.func, ast.Name)
        and call.func.id == "GatewayRunner"
        and all(keyword.arg != "clock" for keyword in call.keywords)
        for call in module.calls
    )


def test_every_gateway_in_a_test_gets_the_clock_of_the_tests_loop(
    tests_and_scripts: list[Module],
) -> None:
    found = {each.path for each in tests_and_scripts if builds_gateway_without_clock(each)}
    assert found == set(MACHINE_TIME)
