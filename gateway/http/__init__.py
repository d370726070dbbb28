"""The daemon's one HTTP port: `app` puts the routes together, `guard` stands before them, `server` serves."""

from gateway.http.app import Health, build_app
from gateway.http.server import HttpServer, PortTaken

__all__ = ["Health", "HttpServer", "PortTaken", "build_app"]
