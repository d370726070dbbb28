"""A real MCP server with a login, by the official package; its authorization server keeps all in memory.

    python mcp_login_server.py [--seconds N]

The first line of standard output is its address. The login page needs no click: it redirects at
once. Access tokens live N seconds. GET /revoke makes all access tokens invalid.
"""

import argparse
import secrets
import socket

import anyio
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sessions.values.clock import SystemClock


def now() -> float:
    return SystemClock().now() / 1000


class Logins:
    """The authorization server; see `OAuthAuthorizationServerProvider`."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.counts = {"registered": 0, "refreshed": 0}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id
        self.counts["registered"] += 1
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        assert client.client_id
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            scopes=params.scopes or [],
            expires_at=now() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, _client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self, _client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.counts["refreshed"] += 1
        del self.refresh[refresh_token.token]
        return self._issue(client, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    async def exchange_identity_assertion(self, *_given: object) -> OAuthToken:
        raise NotImplementedError

    def _issue(
        self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None
    ) -> OAuthToken:
        assert client.client_id
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        expires_at = int(now()) + self.seconds
        self.access[access] = AccessToken(
            token=access,
            client_id=client.client_id,
            scopes=scopes,
            expires_at=expires_at,
            resource=resource,
        )
        self.refresh[refresh] = RefreshToken(
            token=refresh, client_id=client.client_id, scopes=scopes, resource=resource
        )
        return OAuthToken(
            access_token=access,
            refresh_token=refresh,
            expires_in=self.seconds,
            scope=" ".join(scopes),
        )


def built(port: int, seconds: int) -> tuple[MCPServer, Logins]:
    logins = Logins(seconds)
    base = f"http://127.0.0.1:{port}"
    server = MCPServer(
        "guarded",
        log_level="WARNING",
        auth_server_provider=logins,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(base),
            resource_server_url=AnyHttpUrl(f"{base}/mcp"),
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["use"], default_scopes=["use"]
            ),
            required_scopes=["use"],
            validate_token_resource=False,
        ),
    )

    @server.tool()
    async def open_sesame() -> str:
        """Show the treasure."""
        return "gold"

    @server.tool()
    async def tell(ctx: Context) -> str:
        """Tell the token."""
        return dict(ctx.headers or {}).get("authorization", "").removeprefix("Bearer ")

    @server.custom_route("/revoke", methods=["GET"])  # type: ignore[untyped-decorator]  # theirs
    async def revoke(_request: Request) -> Response:
        logins.access.clear()
        return JSONResponse(logins.counts)

    @server.custom_route("/revoke-all", methods=["GET"])  # type: ignore[untyped-decorator]  # theirs
    async def revoke_all(_request: Request) -> Response:
        logins.access.clear()
        logins.refresh.clear()
        return JSONResponse(logins.counts)

    return server, logins


async def serve(seconds: int) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        print(f"http://127.0.0.1:{port}/mcp", flush=True)  # noqa: T201
        server, _ = built(port, seconds)
        config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
        await uvicorn.Server(config).serve([listener])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=3600)
    anyio.run(serve, parser.parse_args().seconds)


if __name__ == "__main__":
    main()
