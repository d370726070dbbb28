"""Logins at servers with OAuth: a person logs in once, and the daemon refreshes the tokens.

Only the login itself follows the addresses that a server names for its authorization server. The
daemon uses the stored tokens, and the stored address of that server for a refresh.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import AnyUrl

from agent.providers.transport.connections import tls_context
from agent.settings import McpSettings
from agent.tools.mcp.contract import (
    LoginFailed,
    LoginPrompt,
    LoginRequired,
    OnLoginSecrets,
    ignore_secrets,
    login_name,
)
from agent.tools.mcp.login_store import LoginStore
from sessions.values.exceptions import error_text, first_error

_HTTP_TIMEOUT = httpx2.Timeout(30.0)
_LOGIN_SECONDS = 60.0  # for a login without a person
_CLIENT_NAME = "Holdfast"

_log = logging.getLogger(__name__)


def store_for(
    folder: Path,
    settings: McpSettings,
    on_secrets: OnLoginSecrets = ignore_secrets,
    person: str = "",
) -> LoginStore:
    """Return the stored login of a server, or of one person there.

    `on_secrets` gets its tokens whenever they are read.
    """
    name = login_name(settings.name, person)
    return LoginStore(folder, name, settings.url or "", on_secrets)


async def stored_login(
    folder: Path,
    settings: McpSettings,
    on_secrets: OnLoginSecrets = ignore_secrets,
    person: str = "",
) -> httpx2.Auth | None:
    """Return the credentials for the requests of the daemon; None without a login.

    With the grant `client_credentials` the daemon logs in by itself.

    Raises:
        LoginRequired: The daemon could not log in.
    """
    store = store_for(folder, settings, on_secrets, person)
    if settings.oauth is not None and settings.oauth.grant == "client_credentials":
        auth = StoredLogin(settings, store)
        if not await auth.is_usable():
            try:
                async with asyncio.timeout(_LOGIN_SECONDS):
                    await log_in(settings, store, None)
            except (LoginFailed, TimeoutError) as error:
                raise LoginRequired(settings.login_command, error_text(error)) from error
        return StoredLogin(settings, store)
    return StoredLogin(settings, store) if await store.has_tokens() else None


async def log_in(settings: McpSettings, store: LoginStore, prompt: LoginPrompt | None) -> bool:
    """Log in and store the tokens; return False if the server needs no login.

    A login that does not succeed leaves an earlier one as it is. `prompt` is None for the grant
    `client_credentials`.

    Raises:
        LoginFailed: The login did not succeed.
    """
    draft = store.new_draft()
    provider = _provider(settings, draft, prompt)
    if prompt and settings.oauth and settings.oauth.client_id:
        await draft.set_client_info(_configured_client(settings, prompt))
    headers = {"Accept": "application/json, text/event-stream"}
    try:
        async with httpx2.AsyncClient(
            auth=provider, timeout=_HTTP_TIMEOUT, verify=tls_context(), headers=headers
        ) as client:
            response = await _make_requests(client, settings.url or "")
    except (OAuthFlowError, httpx2.HTTPError, ExceptionGroup, ValueError) as error:
        raise LoginFailed(error_text(first_error(error))) from error
    if not await draft.has_tokens():
        if response.is_success:
            await store.clear()
            return False
        msg = f"the server answered HTTP {response.status_code} and offers no login"
        raise LoginFailed(msg)
    await draft.set_metadata(provider.context.oauth_metadata)
    await draft.commit()
    return True


async def _make_requests(client: httpx2.AsyncClient, url: str) -> httpx2.Response:
    """Open a session and list the tools: some servers ask for the login only then."""
    first = await client.post(url, json=_first_message())
    if first.is_error:
        return first
    session = first.headers.get("mcp-session-id")
    headers = {"mcp-session-id": session} if session else {}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await client.post(url, json=ready, headers=headers)
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    response = await client.post(url, json=listing, headers=headers)
    if session:
        await client.delete(url, headers=headers)
    return response


class StoredLogin(OAuthClientProvider):
    """Adds the stored token to requests, and refreshes the token when it has expired."""

    def __init__(self, settings: McpSettings, store: LoginStore) -> None:
        metadata = OAuthClientMetadata(redirect_uris=[AnyUrl("http://127.0.0.1/callback")])
        super().__init__(settings.url or "", metadata, store)
        self._login_command = settings.login_command
        self._store = store

    async def is_usable(self) -> bool:
        """True if there is a token that has not expired, or that can be refreshed."""
        await self._initialize()
        return self.context.is_token_valid() or self.context.can_refresh_token()

    async def _initialize(self) -> None:
        await super()._initialize()
        self.context.token_expiry_time = await self._store.expires_at()
        self.context.oauth_metadata = await self._store.get_metadata()

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token; see `httpx2.Auth`.

        Raises:
            LoginRequired: There is no token that the server accepts.
        """
        async with self.context.lock:
            if not self._initialized:
                await self._initialize()
            if not self.context.is_token_valid() and self.context.can_refresh_token():
                await self._handle_refresh_response((yield await self._refresh_token()))
            used = self._access_token
        self._add_auth_header(request)
        response = yield request
        if response.status_code != httpx2.codes.UNAUTHORIZED:
            return
        async with self.context.lock:
            if self._access_token == used:  # no other request has refreshed it meanwhile
                refreshed = self.context.can_refresh_token() and (
                    await self._handle_refresh_response((yield await self._refresh_token()))
                )
                if not refreshed:
                    raise LoginRequired(
                        self._login_command, "the server does not accept the stored login"
                    )
        self._add_auth_header(request)
        yield request

    @property
    def _access_token(self) -> str | None:
        tokens = self.context.current_tokens
        return tokens.access_token if tokens else None


def _provider(
    settings: McpSettings, store: LoginStore, prompt: LoginPrompt | None
) -> OAuthClientProvider:
    oauth = settings.oauth
    if prompt is None:
        secret = oauth.client_secret.reveal() if oauth and oauth.client_secret else ""
        return ClientCredentialsOAuthProvider(
            settings.url or "",
            store,
            oauth.client_id if oauth and oauth.client_id else "",
            secret,
            scope=oauth.scope if oauth else None,
        )

    async def wait() -> AuthorizationCodeResult:
        answer = await prompt.wait()
        return AuthorizationCodeResult(code=answer.code, state=answer.state, iss=answer.issuer)

    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(prompt.redirect_url)],
        client_name=_CLIENT_NAME,
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        scope=oauth.scope if oauth else None,
    )
    return OAuthClientProvider(settings.url or "", metadata, store, prompt.show, wait)


def _configured_client(settings: McpSettings, prompt: LoginPrompt) -> OAuthClientInformationFull:
    oauth = settings.oauth
    assert oauth is not None  # noqa: S101 - checked by the caller
    secret = oauth.client_secret.reveal() if oauth.client_secret else None
    return OAuthClientInformationFull(
        client_id=oauth.client_id or "",
        client_secret=secret,
        redirect_uris=[AnyUrl(prompt.redirect_url)],
        token_endpoint_auth_method="client_secret_basic" if secret else "none",
    )


def _first_message() -> dict[str, object]:
    """Return a request that every server answers, or refuses with 401."""
    return {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "holdfast", "version": "1"},
        },
    }
