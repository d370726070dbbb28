"""What tells how the daemon does, described; and the document itself."""

from typing import Any

from gateway.http.app import Readiness
from gateway.http.openapi import refused
from gateway.http.openapi.terms import JSON, TEXT, Content, Operation, Reply

_FIGURES = "# TYPE holdfast_running_turns gauge\nholdfast_running_turns 2.0\n"
_READY = Content(
    JSON,
    Readiness,
    {
        "all is well": Readiness(ready=True, not_ready=[], status="running"),
        "one is not": Readiness(ready=False, not_ready=["telegram: connecting"], status="running"),
    },
)

OPERATIONS = (
    Operation(
        path="/livez",
        method="get",
        id="isAlive",
        tag="watching",
        summary="Whether it answers at all",
        access="open",
        replies=[
            Reply(200, "It does.", [Content(TEXT, None, {"alive": "ok\n"})]),
            *refused.guarded(),
        ],
    ),
    Operation(
        path="/readyz",
        method="get",
        id="isReady",
        tag="watching",
        summary="Whether it can do its work, and what keeps it from it",
        access="open",
        replies=[
            Reply(200, "It can.", [_READY]),
            *refused.guarded(),
            Reply(503, "It cannot; `not_ready` says why.", [_READY]),
        ],
    ),
    Operation(
        path="/metrics",
        method="get",
        id="readFigures",
        tag="watching",
        summary="Figures in Prometheus's text form",
        description="Programs of the same machine need no key.",
        access="key unless local",
        replies=[
            Reply(200, "The figures.", [Content(TEXT, None, {"some": _FIGURES})]),
            *refused.guarded(),
            refused.without_key(),
        ],
    ),
    Operation(
        path="/openapi.json",
        method="get",
        id="readDescription",
        tag="watching",
        summary="This document",
        access="open",
        replies=[
            Reply(200, "The document.", [Content(JSON, dict[str, Any])]),
            *refused.counted(),
        ],
    ),
)
