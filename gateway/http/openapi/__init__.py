"""`/openapi.json`: the OpenAPI document, generated from the types that decode requests.

The document needs no key: every installation of a version has the same document, and client
generators and viewers send no key.

document    the whole document; `terms` defines operation, response and parameter specs
chat        `/v1/chat/completions`, `/v1/completions`, `/v1/models`; `responses`: `/v1/responses`; `messages`: `/v1/messages`
watching    `/livez`, `/readyz`, `/metrics`, `/openapi.json`
refused     every error response, with the messages that the server really sends
"""

import asyncio
from importlib import metadata


async def openapi_json() -> bytes:
    """Return the document, which is built on the first request."""
    return await asyncio.to_thread(_build)


def _build() -> bytes:
    from gateway.http.openapi.document import written

    return written(metadata.version("holdfast"))
