"""Tasks for DSPy; prints the result of the task that the command line names."""

import sys

import dspy
import dspy_model  # configures the model


class Capital(dspy.Signature):
    """Name the largest city of a country."""

    country: str = dspy.InputField()
    city: str = dspy.OutputField()
    people: int = dspy.OutputField()


def predict() -> str:
    found = dspy.Predict(Capital)(country="Spain")
    return f"{found.city} {found.people}"


def json() -> str:
    with dspy.context(adapter=dspy.JSONAdapter()):
        return predict()


TASKS = {"predict": predict, "json": json}

assert dspy_model
print(TASKS[sys.argv[1]]())
