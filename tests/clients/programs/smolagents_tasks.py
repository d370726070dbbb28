"""Tasks for smolagents; prints the result of the task that the command line names."""

import sys

from smolagents import CodeAgent, ToolCallingAgent, tool
from smolagents_model import model

QUIET = {"verbosity_level": 0, "max_steps": 4}


@tool
def double(number: int) -> int:
    """Double a number.

    Args:
        number: The number to double.
    """
    return number * 2


TASKS = {
    "tools": lambda: ToolCallingAgent(tools=[double], model=model, **QUIET).run("Double 21."),
    "stream": lambda: ToolCallingAgent(
        tools=[double], model=model, stream_outputs=True, **QUIET
    ).run("Double 21."),
    "code": lambda: CodeAgent(tools=[double], model=model, **QUIET).run("Double 21."),
}

print(TASKS[sys.argv[1]]())
