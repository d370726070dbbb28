"""Faults that tests inject into calls of the fake Telegram server."""

import asyncio
from dataclasses import dataclass


class Answer(Exception):
    """An error response of the server."""

    def __init__(self, status: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.parameters = parameters


@dataclass(frozen=True)
class Fault:
    """One failure of a call; the call has no effect unless `carried_out`."""

    status: int = 0
    description: str = ""
    retry_after: int = 0
    html: bool = False  # respond with a proxy's HTML page instead of JSON
    cut: bool = False
    carried_out: bool = False
    gate: asyncio.Event | None = None  # wait for this event before responding


def too_many(retry_after: int) -> Fault:
    return Fault(429, f"Too Many Requests: retry after {retry_after}", retry_after)


def failed(status: int = 500, description: str = "Internal Server Error") -> Fault:
    return Fault(status, description)


def refused(description: str) -> Fault:
    return Fault(400, f"Bad Request: {description}")


def gateway_page() -> Fault:
    return Fault(502, "Bad Gateway", html=True)


def cut_before() -> Fault:
    return Fault(description="cut before", cut=True)


def cut_after() -> Fault:
    return Fault(description="cut after", cut=True, carried_out=True)


def hanging(gate: asyncio.Event, *, carried_out: bool = False) -> Fault:
    return Fault(gate=gate, carried_out=carried_out)
