"""People with access beyond the configuration: the first owner, and paired people.

The state is one stored value, which only this module writes, always as a whole.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence

import msgspec

from gateway.access.entries import PersonEntry, parse_admin_entry
from gateway.access.pairing import (
    CodeExpired,
    CodeInvalid,
    CodeRedeemed,
    OfferCode,
    PairingCode,
    PairingFull,
    decide_offer,
    find_claim_code,
    hash_code,
    new_code,
    next_allowed_attempt,
    redeem_code,
)
from gateway.access.policy import Policy, build_policy
from gateway.access.settings import AccessSettings
from platforms.core.contract import InboundMessage
from sessions.store.store import SessionStore
from sessions.values.clock import Clock, rfc3339
from sessions.values.notices import NoticeId

_SHELF, _NAME = "people", "book"
_DAY_MS = 86_400_000
_MAX_MENTIONS = 1_000
_ADMINS_KEY = ""  # wrong codes of all admins are counted together


class PairedPerson(msgspec.Struct, frozen=True):
    """A person who got access by a code."""

    principal: str
    name: str
    admin: bool
    since: int


class FailedAttempts(msgspec.Struct, frozen=True):
    """Wrong codes of one person."""

    count: int
    last: int


class AccessState(msgspec.Struct, frozen=True):
    """The stored state."""

    key: str
    codes: tuple[PairingCode, ...] = ()
    friends: tuple[PairedPerson, ...] = ()
    failures: dict[str, FailedAttempts] = {}


class StrangerNotices(msgspec.Struct, frozen=True):
    """Notices for a person without access and for the admins; either may be empty."""

    notice: NoticeId | None = None
    fields: dict[str, str | int] = {}
    admin_notice: NoticeId | None = None
    admin_fields: dict[str, str | int] = {}


async def read_access_state(store: SessionStore) -> AccessState | None:
    """Load the stored state; None before the first start."""
    stored = await store.get_value(_SHELF, _NAME)
    return None if stored is None else msgspec.json.decode(stored, type=AccessState)


class People:
    """Stored access, and the policy built from it and the configuration."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        settings: AccessSettings,
        choose: Callable[[Sequence[str]], str] = secrets.choice,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._choose = choose
        self._lock = asyncio.Lock()
        self._state = AccessState(key="")
        self._policy = Policy()
        self._last_mentions: dict[str, int] = {}

    async def load(self) -> None:
        """Load the state; at the first start, create this installation's key."""
        state = await read_access_state(self._store)
        if state is None:
            await self._save(AccessState(key=secrets.token_hex(32)))
        else:
            self._set_state(state)

    def apply_settings(self, settings: AccessSettings) -> None:
        """Rebuild the policy for changed settings."""
        self._settings = settings
        self._set_state(self._state)

    def current_policy(self) -> Policy:
        """Return the policy in force."""
        return self._policy

    @property
    def has_admin(self) -> bool:
        """True if there is an admin on a platform, besides the owner at terminal and page."""
        return bool(self._settings.admins) or any(person.admin for person in self._state.friends)

    def admins(self) -> tuple[str, ...]:
        """Return the stable ids of all admins who can be messaged."""
        named = [
            entry
            for entry in self._settings.admins
            if isinstance(parse_admin_entry(entry), PersonEntry)
        ]
        return (*named, *(person.principal for person in self._state.friends if person.admin))

    # --- people without access ------------------------------------------------------------------

    async def handle_stranger(
        self, message: InboundMessage, principal: str, *, direct: bool
    ) -> StrangerNotices:
        """Handle a message from a person without access: a claim, pairing request or mention."""
        if not message.sender.id:  # access needs an id
            return StrangerNotices()
        name = message.sender.name or principal
        if not direct:
            return self._on_mention(principal, name, message.address.chat)
        code = find_claim_code(message.text)
        if code:
            claimed = await self.claim(principal, name, code)
            return StrangerNotices(NoticeId.CLAIMED if claimed else NoticeId.CLAIM_REFUSED)
        if not self._settings.pairing:
            return StrangerNotices()
        return await self._request_pairing(message.address.platform, principal, name)

    def _on_mention(self, principal: str, name: str, chat: str) -> StrangerNotices:
        now = self._clock.now()
        if now - self._last_mentions.get(principal, -_DAY_MS) < _DAY_MS:
            return StrangerNotices()
        if len(self._last_mentions) >= _MAX_MENTIONS:
            self._last_mentions.clear()
        self._last_mentions[principal] = now
        fields: dict[str, str | int] = {"name": name, "principal": principal, "chat": chat}
        return StrangerNotices(admin_notice=NoticeId.REFUSED_MENTION, admin_fields=fields)

    async def _request_pairing(self, platform: str, principal: str, name: str) -> StrangerNotices:
        async with self._lock:
            now = self._clock.now()
            match decide_offer(self._state.codes, platform, principal, now):
                case OfferCode():
                    text = new_code(self._choose)
                    code = PairingCode(
                        kind="pair",
                        digest=self._hash_code(text),
                        platform=platform,
                        principal=principal,
                        created_at=now,
                        name=name,
                    )
                    await self._save(
                        msgspec.structs.replace(self._state, codes=(*self._open_codes(), code))
                    )
                    fields: dict[str, str | int] = {
                        "name": name,
                        "principal": principal,
                        "code": text,
                    }
                    return StrangerNotices(
                        NoticeId.PAIRING_CODE, {"code": text}, NoticeId.PAIR_REQUEST, fields
                    )
                case PairingFull():
                    return StrangerNotices(
                        admin_notice=NoticeId.REFUSED_MENTION,
                        admin_fields={"name": name, "principal": principal, "chat": platform},
                    )
                case _:
                    return StrangerNotices(NoticeId.PAIRING_PENDING)

    # --- codes ----------------------------------------------------------------------------------

    async def create_claim_code(self) -> str:
        """Create a claim code for the first admin; this invalidates an earlier one."""
        async with self._lock:
            text = new_code(self._choose)
            code = PairingCode(
                kind="claim",
                digest=self._hash_code(text),
                platform="",
                principal="",
                created_at=self._clock.now(),
            )
            kept = tuple(other for other in self._open_codes() if other.kind != "claim")
            await self._save(msgspec.structs.replace(self._state, codes=(*kept, code)))
            return text

    async def claim(self, principal: str, name: str, code_text: str) -> bool:
        """Make the sender of a valid code an admin; each wrong code delays the next attempt."""
        async with self._lock:
            found = await self._redeem(principal, code_text, "claim")
            if found is None:
                return False
            person = PairedPerson(principal, name, admin=True, since=self._clock.now())
            await self._grant_access(person, found)
            return True

    async def approve(self, code_text: str) -> tuple[str, str] | None:
        """Give access to the person with this code; return principal and name."""
        async with self._lock:
            found = await self._redeem(_ADMINS_KEY, code_text, "pair")
            if found is None:
                return None
            person = PairedPerson(found.principal, found.name, admin=False, since=self._clock.now())
            await self._grant_access(person, found)
            return found.principal, found.name

    async def revoke(self, principal: str) -> bool:
        """Revoke access, effective with the next message; return False if there was none."""
        async with self._lock:
            left = tuple(each for each in self._state.friends if each.principal != principal)
            codes = tuple(each for each in self._open_codes() if each.principal != principal)
            if len(left) == len(self._state.friends) and codes == self._open_codes():
                return False
            await self._save(msgspec.structs.replace(self._state, friends=left, codes=codes))
            return True

    def list_people(self) -> list[dict[str, str]]:
        """Return pairing requests and people with access."""
        waiting = [
            {"principal": code.principal, "name": code.name, "state": "asks to be let in"}
            for code in self._open_codes()
            if code.kind == "pair"
        ]
        known = [
            {
                "principal": each.principal,
                "name": each.name,
                "state": f"{'admin' if each.admin else 'member'} since {rfc3339(each.since)[:10]}",
            }
            for each in self._state.friends
        ]
        return waiting + known

    async def _redeem(self, attempter: str, code_text: str, kind: str) -> PairingCode | None:
        now = self._clock.now()
        tried = self._state.failures.get(attempter, FailedAttempts(0, 0))
        if now < next_allowed_attempt(tried.count, tried.last):
            return None
        key = bytes.fromhex(self._state.key)
        match redeem_code(
            self._state.codes, code_text, key, "claim" if kind == "claim" else "pair", now
        ):
            case CodeRedeemed(code=code):
                return code
            case CodeInvalid() | CodeExpired():
                failures = {**self._state.failures, attempter: FailedAttempts(tried.count + 1, now)}
                recent = {
                    name: each for name, each in failures.items() if now - each.last < _DAY_MS
                }
                await self._save(msgspec.structs.replace(self._state, failures=recent))
        return None

    async def _grant_access(self, person: PairedPerson, code: PairingCode) -> None:
        """Grant access and delete the code in one write."""
        others = tuple(each for each in self._state.friends if each.principal != person.principal)
        codes = tuple(each for each in self._open_codes() if each.digest != code.digest)
        failures = {k: v for k, v in self._state.failures.items() if k != person.principal}
        await self._save(
            msgspec.structs.replace(
                self._state, friends=(*others, person), codes=codes, failures=failures
            )
        )

    # --- the stored state -----------------------------------------------------------------------

    def _hash_code(self, text: str) -> str:
        return hash_code(text, bytes.fromhex(self._state.key))

    def _open_codes(self) -> tuple[PairingCode, ...]:
        now = self._clock.now()
        return tuple(code for code in self._state.codes if now < code.expires_at)

    async def _save(self, state: AccessState) -> None:
        await self._store.put_value(_SHELF, _NAME, msgspec.json.encode(state).decode())
        self._set_state(state)

    def _set_state(self, state: AccessState) -> None:
        self._state = state
        self._policy = build_policy(
            self._settings.allow,
            self._settings.admins,
            approved=(each.principal for each in state.friends if not each.admin),
            appointed=(each.principal for each in state.friends if each.admin),
            claim_open=any(code.kind == "claim" for code in state.codes),
        )
