"""OpenAPI description of health checks, metrics and the document itself."""

from typing import Any

from gateway.http.app import Readiness
from gateway.http.openapi import refused
from gateway.http.openapi.terms import JSON, TEXT, ContentSpec, OperationSpec, ResponseSpec

_METRICS_EXAMPLE = "# TYPE holdfast_running_turns gauge\nholdfast_running_turns 2.0\n"
_READINESS = ContentSpec(
    JSON,
    Readiness,
    {
        "all is well": Readiness(ready=True, not_ready=[], status="running"),
        "a platform is connecting": Readiness(
            ready=False, not_ready=["telegram: connecting"], status="running"
        ),
        "an MCP server is not connected": Readiness(
            ready=True, not_ready=[], status="running", degraded=["MCP server shop"]
        ),
    },
)

OPERATIONS = (
    OperationSpec(
        path="/livez",
        method="get",
        id="isAlive",
        tag="watching",
        summary="Check that the daemon is alive",
        access="open",
        responses=[
            ResponseSpec(200, "Alive.", [ContentSpec(TEXT, None, {"alive": "ok\n"})]),
            *refused.common_responses(),
        ],
    ),
    OperationSpec(
        path="/readyz",
        method="get",
        id="isReady",
        tag="watching",
        summary="Check that the daemon is ready, or list its problems",
        access="open",
        responses=[
            ResponseSpec(200, "Ready.", [_READINESS]),
            *refused.common_responses(),
            ResponseSpec(503, "Not ready; `not_ready` lists the problems.", [_READINESS]),
        ],
    ),
    OperationSpec(
        path="/metrics",
        method="get",
        id="readFigures",
        tag="watching",
        summary="Metrics in Prometheus text format",
        description="With `http.open_metrics`, programs on the same machine need no key.",
        access="key",
        responses=[
            ResponseSpec(
                200, "The metrics.", [ContentSpec(TEXT, None, {"some": _METRICS_EXAMPLE})]
            ),
            *refused.common_responses(),
            refused.unauthorized_response(),
        ],
    ),
    OperationSpec(
        path="/openapi.json",
        method="get",
        id="readDescription",
        tag="watching",
        summary="This document",
        access="open",
        responses=[
            ResponseSpec(200, "The document.", [ContentSpec(JSON, dict[str, Any])]),
            *refused.limited_responses(),
        ],
    ),
)
