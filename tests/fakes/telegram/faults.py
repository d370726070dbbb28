"""How calls go wrong."""

import asyncio
from dataclasses import dataclass


class Answer(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.parameters = parameters


@dataclass(frozen=True)
class Fault:
    """How a call goes wrong: not carried out unless `carried_out`."""

    status: int = 0
    description: str = ""
    retry_after: int = 0
    html: bool = False  # a gateway's page instead of Telegram's own words
    cut: bool = False
    carried_out: bool = False
    gate: asyncio.Event | None = None  # waits for it first


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
