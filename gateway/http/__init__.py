"""The daemon's one HTTP port.

app       puts the routes together; health and metrics are here
guard     stands before them: host, origin, size; crowd: how many at once
key       who may use the API
server    serves; patience: how long a client may take
failure   the one shape of all errors; refusal: as a response
"""

from gateway.http.app import Health, build_app
from gateway.http.server import HttpServer, PortTaken

__all__ = ["Health", "HttpServer", "PortTaken", "build_app"]
