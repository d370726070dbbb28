"""Tasks for instructor; prints the result of the mode that the command line names."""

import os
import sys

import instructor
from instructor_client import client
from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    name: str
    people: int


MODEL = os.environ["GATEWAY_MODEL"]
QUESTION = {
    "messages": [{"role": "user", "content": "The largest city of Spain?"}],
    "response_model": City,
}


def other(mode: instructor.Mode):
    api = OpenAI(base_url=os.environ["GATEWAY_URL"], api_key=os.environ["GATEWAY_KEY"])
    return instructor.from_openai(api, mode=mode).chat.completions.create(model=MODEL, **QUESTION)


def partial() -> str:
    pieces = client.chat.completions.create_partial(**QUESTION)
    return list(pieces)[-1]


TASKS = {
    "default": lambda: client.chat.completions.create(**QUESTION),
    "partial": partial,
}

TASK = sys.argv[1]
print(TASKS[TASK]() if TASK in TASKS else other(instructor.Mode[TASK]))
