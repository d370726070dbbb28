"""`/openapi.json`: the API's description of itself, made from what requests are read with.

Whoever may reach the port may read it, with or without a key: it is the same for every installation
of a version, tells nothing of this one, and generators of clients and viewers fetch it without one.

terms       what an operation and its answers are
refused     every refusal and error, with the words that are really sent
chat        `/v1/chat/completions`, `/v1/models`; responses: `/v1/responses`
watching    `/livez`, `/readyz`, `/metrics`, `/openapi.json`
document    all of it as one text
"""

import asyncio
from importlib import import_module, metadata


async def openapi_json() -> bytes:
    """Give the document; nothing of it is imported or made before somebody asks."""
    return await asyncio.to_thread(_build)


def _build() -> bytes:
    document = import_module("gateway.http.openapi.document")
    written: bytes = document.written(metadata.version("holdfast"))
    return written
