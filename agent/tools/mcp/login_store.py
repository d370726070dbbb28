"""Stored logins at servers: one file per server, readable only by the owner of the daemon."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken
from pydantic import ValidationError

from agent.tools.blocking import run_in_thread
from agent.tools.mcp.contract import OnLoginSecrets, ignore_secrets
from sessions.values.clock import SystemClock

_SECRET_TOKENS = ("access_token", "refresh_token", "id_token")
_EARLY_SECONDS = 30  # a token counts as expired this long before its end


class _StoredLogin(msgspec.Struct, omit_defaults=True):
    """The content of the file."""

    url: str  # a login is never used at another address
    tokens: dict[str, Any] = {}
    client: dict[str, Any] = {}
    metadata: dict[str, Any] = {}  # of the authorization server
    expires_at: float | None = None  # seconds since 1970


class LoginStore:
    """The login at one server; see `mcp.client.auth.TokenStorage`."""

    def __init__(
        self, folder: Path, name: str, url: str, on_secrets: OnLoginSecrets = ignore_secrets
    ) -> None:
        self._folder = folder
        self._name = name
        self._path = folder / f"{name}.json"
        self._url = url
        self._on_secrets = on_secrets  # called before the secrets are used

    def new_draft(self) -> "LoginDraft":
        """Return an empty login that replaces the stored one when it is committed."""
        return LoginDraft(self._folder, self._name, self._url, self._on_secrets)

    async def has_tokens(self) -> bool:
        """Return True if there is a login for this server."""
        return bool((await self._load()).tokens)

    async def expires_at(self) -> float | None:
        """Return when the access token expires, in seconds since 1970; None: not known."""
        return (await self._load()).expires_at

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens."""
        with contextlib.suppress(ValidationError):
            return OAuthToken.model_validate((await self._load()).tokens)
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens with the time at which they expire."""
        login = await self._load()
        login.tokens = tokens.model_dump(mode="json", exclude_none=True)
        seconds = tokens.expires_in
        login.expires_at = None if seconds is None else _now() + seconds - _EARLY_SECONDS
        await self._save(login)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return what the authorization server knows us by."""
        with contextlib.suppress(ValidationError):
            return OAuthClientInformationFull.model_validate((await self._load()).client)
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store what the authorization server knows us by."""
        login = await self._load()
        login.client = client_info.model_dump(mode="json", exclude_none=True)
        await self._save(login)

    async def get_metadata(self) -> OAuthMetadata | None:
        """Return the description of the authorization server."""
        with contextlib.suppress(ValidationError):
            return OAuthMetadata.model_validate((await self._load()).metadata)
        return None

    async def set_metadata(self, metadata: OAuthMetadata | None) -> None:
        """Store the description of the authorization server, which a refresh needs."""
        login = await self._load()
        login.metadata = metadata.model_dump(mode="json", exclude_none=True) if metadata else {}
        await self._save(login)

    async def clear(self) -> None:
        """Forget the login."""
        await run_in_thread(lambda _: self._path.unlink(missing_ok=True))

    async def _load(self) -> _StoredLogin:
        login = await run_in_thread(lambda _: self._read())
        self._report_secrets(login)
        return login

    async def _save(self, login: _StoredLogin) -> None:
        self._report_secrets(login)
        await run_in_thread(lambda _: self._write(login))

    def _report_secrets(self, login: _StoredLogin) -> None:
        found = [login.tokens.get(name) for name in _SECRET_TOKENS]
        found.append(login.client.get("client_secret"))
        self._on_secrets(self._name, tuple(value for value in found if isinstance(value, str)))

    def _read(self) -> _StoredLogin:
        try:
            login = msgspec.json.decode(self._path.read_bytes(), type=_StoredLogin)
        except (OSError, msgspec.DecodeError):
            return _StoredLogin(self._url)
        return login if login.url == self._url else _StoredLogin(self._url)

    def _write(self, login: _StoredLogin) -> None:
        folder = self._path.parent
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=folder)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(login))
                file.flush()
                os.fsync(descriptor)
            Path(name).replace(self._path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


class LoginDraft(LoginStore):
    """A login in progress, kept in memory until it is committed."""

    def __init__(self, folder: Path, name: str, url: str, on_secrets: OnLoginSecrets) -> None:
        super().__init__(folder, name, url, on_secrets)
        self._login = _StoredLogin(url)

    async def commit(self) -> None:
        """Store the login in place of the earlier one."""
        await super()._save(self._login)

    async def _load(self) -> _StoredLogin:
        return self._login

    async def _save(self, login: _StoredLogin) -> None:
        self._report_secrets(login)
        self._login = login


def _now() -> float:
    return SystemClock().now() / 1000  # the official package compares with the same clock
