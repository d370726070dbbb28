"""Static files of the page, kept in memory; no other path can be requested."""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Own files only and nothing inline: even text that slipped through as HTML could not run.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

PAGE_HEADERS = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}


class PageFiles:
    """The page's files, read once."""

    def __init__(self) -> None:
        self._files = {
            path.name: path.read_bytes()
            for path in Path(__file__).with_name("page").iterdir()
            if path.suffix in _TYPES
        }

    def page(self, name: str, status: int = 200) -> Response:
        """Return an HTML page, uncached because the content depends on the sign-in."""
        return Response(
            self._files[name], status, headers={**PAGE_HEADERS, "content-type": _TYPES[".html"]}
        )

    async def serve(self, request: Request) -> Response:
        """Return a script, style or picture; revalidated by the browser on every load."""
        name = request.path_params["name"]
        if name not in self._files or name.endswith(".html"):
            return Response("There is no such file.\n", 404, media_type="text/plain")
        content = self._files[name]
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {
            "etag": tag,
            "cache-control": "no-cache",
            "x-content-type-options": "nosniff",
            "content-type": _TYPES[Path(name).suffix],
        }
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)
