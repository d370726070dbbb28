"""The daemon's one HTTP port.

app       the Starlette application: all routes, plus health checks and metrics
server    uvicorn inside the daemon's event loop; `client_timeouts` disconnects slow clients
guard     checks of host, origin and body size; `concurrency` limits requests in progress
auth      the check of the API key; `api_key` creates and stores the key
client_names  the user and the chat that a client names
errors    the JSON shape of every error; `responses` turns an error into a response
api/      the API for clients of OpenAI and Anthropic; `openapi/` describes it
"""

from gateway.http.app import Health, build_app, metrics_route, openapi_route
from gateway.http.server import HttpServer, PortTaken

__all__ = ["Health", "HttpServer", "PortTaken", "build_app", "metrics_route", "openapi_route"]
