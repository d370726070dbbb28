"""People with access beyond the configuration: the first owner, and paired people.

The state is one stored value, which only this module writes, always as a whole.
"""

import asyncio
import math
import secrets
from collections.abc import Callable, Iterable, Sequence

import msgspec

from gateway.access.api_keys import StoredKey
from gateway.access.entries import PersonEntry, parse_admin_entry
from gateway.access.listing import AccessSource, ListedPerson, merge_people
from gateway.access.pairing import (
    CodeAlreadyOffered,
    CodeExpired,
    CodeInvalid,
    CodeKind,
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
from gateway.access.strangers import StrangerBounds
from platforms.core.contract import InboundMessage
from sessions.changes import Change, PutValue
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.notices import NoticeFields, NoticeId

_SHELF, _NAME = "people", "book"
_DAY_MS = 86_400_000
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


class CodeDelayed(Exception):
    """No code is checked for some time, because too many were wrong."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"Too many codes were wrong. Please try again in {seconds} s.")
        self.seconds = seconds


class StrangerNotices(msgspec.Struct, frozen=True):
    """Notices for a person without access and for the admins; either may be empty."""

    notice: NoticeId | None = None
    fields: NoticeFields = {}
    admin_notice: NoticeId | None = None
    admin_fields: NoticeFields = {}
    stored: bool = False  # committed together with the change that they tell of


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
        self._api_keys: tuple[StoredKey, ...] = ()
        self._policy = Policy()
        self._stranger_bounds = StrangerBounds()

    async def load(self, *, create: bool = True) -> None:
        """Load the state; at the first start, create this installation's key.

        Without `create` nothing is written, for a store that is open for reading.
        """
        state = await read_access_state(self._store)
        if state is None and create:
            await self._save(AccessState(key=secrets.token_hex(32)))
        else:
            self._set_state(state or self._state)

    def apply_settings(self, settings: AccessSettings) -> None:
        """Rebuild the policy for changed settings."""
        self._settings = settings
        self._set_state(self._state)

    def apply_api_keys(self, keys: Iterable[StoredKey]) -> None:
        """Rebuild the policy for changed API keys; see `gateway.access.key_store`."""
        self._api_keys = tuple(keys)
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
        self,
        message: InboundMessage,
        principal: str,
        *,
        direct: bool,
        changes_of: Callable[[StrangerNotices], Sequence[Change]] = lambda _: (),
    ) -> StrangerNotices:
        """Handle a message from a person without access: a claim, pairing request or mention.

        Notices about a new code or a claim are committed together with it: they are passed to
        `changes_of`, which returns the changes that store them.
        """
        if not message.sender.id:  # access needs an id
            return StrangerNotices()
        name = message.sender.name or principal
        if not direct:
            return self._report_to_admins(principal, name, message.address.chat)
        code = find_claim_code(message.text)
        if code:
            try:
                told = changes_of(StrangerNotices(NoticeId.CLAIMED))
                claimed = await self.claim(principal, name, code, *told)
            except CodeDelayed as error:
                fields = {"seconds": error.seconds}
                return self._reply_to_code(principal, NoticeId.CODE_DELAYED, fields)
            if claimed:
                return StrangerNotices(NoticeId.CLAIMED, stored=True)
            return self._reply_to_code(principal, NoticeId.CLAIM_REFUSED)
        if not self._settings.pairing:
            return StrangerNotices()
        return await self._request_pairing(message.address.platform, principal, name, changes_of)

    def take_stranger_digest(self) -> int:
        """Return the number of people for a due digest to the admins, or 0."""
        return self._stranger_bounds.take_digest(self._clock.now())

    def _report_to_admins(self, principal: str, name: str, chat: str) -> StrangerNotices:
        if not self._stranger_bounds.try_notify(principal, self._clock.now()):
            return StrangerNotices()
        fields = {"name": name, "principal": principal, "chat": chat}
        return StrangerNotices(admin_notice=NoticeId.REFUSED_MENTION, admin_fields=fields)

    def _bounded_reply(self, principal: str, notice: NoticeId) -> StrangerNotices:
        if not self._stranger_bounds.try_reply(principal, self._clock.now()):
            return StrangerNotices()
        return StrangerNotices(notice)

    def _reply_to_code(
        self, principal: str, notice: NoticeId, fields: NoticeFields | None = None
    ) -> StrangerNotices:
        wrong_codes = self._state.failures.get(principal, FailedAttempts(0, 0)).count
        if not self._stranger_bounds.try_reply_to_code(principal, wrong_codes, self._clock.now()):
            return StrangerNotices()
        return StrangerNotices(notice, fields or {})

    async def _request_pairing(
        self,
        platform: str,
        principal: str,
        name: str,
        changes_of: Callable[[StrangerNotices], Sequence[Change]],
    ) -> StrangerNotices:
        async with self._lock:
            now = self._clock.now()
            match decide_offer(self._state.codes, platform, principal, now):
                case OfferCode():
                    text = new_code(self._choose)
                    code = PairingCode(
                        kind=CodeKind.PAIR,
                        digest=self._hash_code(text),
                        platform=platform,
                        principal=principal,
                        created_at=now,
                        name=name,
                    )
                    fields = {"name": name, "principal": principal, "code": text}
                    notices = StrangerNotices(
                        NoticeId.PAIRING_CODE, {"code": text}, NoticeId.PAIR_REQUEST, fields
                    )
                    codes = (*self._open_codes(), code)
                    await self._save(
                        msgspec.structs.replace(self._state, codes=codes), *changes_of(notices)
                    )
                    return msgspec.structs.replace(notices, stored=True)
                case PairingFull():
                    return self._report_to_admins(principal, name, platform)
                case CodeAlreadyOffered():
                    await self._complete_name(principal, name)
                    return self._bounded_reply(principal, NoticeId.PAIRING_PENDING)

    async def _complete_name(self, principal: str, name: str) -> None:
        """Add the name to a request that was made while the platform did not tell the name."""
        codes = tuple(
            msgspec.structs.replace(code, name=name)
            if code.principal == principal == code.name
            else code
            for code in self._open_codes()
        )
        if codes != self._open_codes():
            await self._save(msgspec.structs.replace(self._state, codes=codes))

    # --- codes ----------------------------------------------------------------------------------

    async def create_claim_code(self) -> str:
        """Create a claim code for the first admin; this invalidates an earlier one."""
        async with self._lock:
            text = new_code(self._choose)
            code = PairingCode(
                kind=CodeKind.CLAIM,
                digest=self._hash_code(text),
                platform="",
                principal="",
                created_at=self._clock.now(),
            )
            kept = tuple(other for other in self._open_codes() if other.kind is not CodeKind.CLAIM)
            await self._save(msgspec.structs.replace(self._state, codes=(*kept, code)))
            return text

    async def claim(self, principal: str, name: str, code_text: str, *changes: Change) -> bool:
        """Make the sender of a valid code an admin; each wrong code delays the next attempt.

        `changes` are committed together with the claim.
        Raises `CodeDelayed` before the delay is over, whether the code is valid or not.
        """
        async with self._lock:
            found = await self._redeem(principal, code_text, CodeKind.CLAIM)
            if found is None:
                return False
            person = PairedPerson(principal, name, admin=True, since=self._clock.now())
            await self._grant_access(person, found, *changes)
            return True

    async def approve(
        self,
        code_or_principal: str,
        changes_of: Callable[[str], Sequence[Change]] = lambda _: (),
    ) -> tuple[str, str] | None:
        """Give access to the person with this code or open request; return principal and name.

        `changes_of` returns changes for the principal that are committed together with the access.
        Raises `CodeDelayed` like `claim`; a stable id is no secret and never delayed.
        """
        text = code_or_principal.strip()
        async with self._lock:
            found = (
                self._find_request(text)
                if ":" in text
                else await self._redeem(_ADMINS_KEY, text, CodeKind.PAIR)
            )
            if found is None:
                return None
            person = PairedPerson(found.principal, found.name, admin=False, since=self._clock.now())
            await self._grant_access(person, found, *changes_of(found.principal))
            return found.principal, found.name

    async def revoke(self, principal: str) -> bool:
        """Revoke access; return False if there was none.

        The caller stops the work of the person, see `gateway.commands.enforcement`.
        """
        async with self._lock:
            left = tuple(each for each in self._state.friends if each.principal != principal)
            codes = tuple(each for each in self._open_codes() if each.principal != principal)
            if len(left) == len(self._state.friends) and codes == self._open_codes():
                return False
            await self._save(msgspec.structs.replace(self._state, friends=left, codes=codes))
            return True

    def list_people(self) -> list[ListedPerson]:
        """Return everyone with access and every open request, each person once."""
        requests = (
            ListedPerson(
                principal=code.principal,
                name=code.name,
                source=AccessSource.REQUEST,
                since=code.created_at,
                code_expires_at=code.expires_at,
            )
            for code in self._open_codes()
            if code.kind is CodeKind.PAIR
        )
        configured = (
            ListedPerson(principal=entry, role=role, source=AccessSource.CONFIGURATION)
            for role, entries in (
                ("admin", self._settings.admins),
                ("member", self._settings.allow),
            )
            for entry in entries
        )
        paired = (
            ListedPerson(
                principal=each.principal,
                name=each.name,
                role="admin" if each.admin else "member",
                source=AccessSource.PAIRING,
                since=each.since,
            )
            for each in self._state.friends
        )
        return merge_people((*requests, *configured, *paired))

    def describe_people(self) -> list[dict[str, object]]:
        """Return `list_people` as JSON data."""
        now = self._clock.now()
        return [each.data(now) for each in self.list_people()]

    def _find_request(self, principal: str) -> PairingCode | None:
        return next(
            (
                code
                for code in self._open_codes()
                if code.kind is CodeKind.PAIR and code.principal == principal
            ),
            None,
        )

    async def _redeem(self, attempter: str, code_text: str, kind: CodeKind) -> PairingCode | None:
        now = self._clock.now()
        tried = self._state.failures.get(attempter, FailedAttempts(0, 0))
        if (wait := next_allowed_attempt(tried.count, tried.last) - now) > 0:
            raise CodeDelayed(math.ceil(wait / 1000))
        key = bytes.fromhex(self._state.key)
        match redeem_code(self._state.codes, code_text, key, kind, now):
            case CodeRedeemed(code=code):
                return code
            case CodeInvalid() | CodeExpired():
                failures = {**self._state.failures, attempter: FailedAttempts(tried.count + 1, now)}
                recent = {
                    name: each for name, each in failures.items() if now - each.last < _DAY_MS
                }
                await self._save(msgspec.structs.replace(self._state, failures=recent))
        return None

    async def _grant_access(
        self, person: PairedPerson, code: PairingCode, *changes: Change
    ) -> None:
        """Grant access and delete the code in one write."""
        others = tuple(each for each in self._state.friends if each.principal != person.principal)
        codes = tuple(each for each in self._open_codes() if each.digest != code.digest)
        failures = {k: v for k, v in self._state.failures.items() if k != person.principal}
        await self._save(
            msgspec.structs.replace(
                self._state, friends=(*others, person), codes=codes, failures=failures
            ),
            *changes,
        )

    # --- the stored state -----------------------------------------------------------------------

    def _hash_code(self, text: str) -> str:
        return hash_code(text, bytes.fromhex(self._state.key))

    def _open_codes(self) -> tuple[PairingCode, ...]:
        now = self._clock.now()
        return tuple(code for code in self._state.codes if now < code.expires_at)

    async def _save(self, state: AccessState, *changes: Change) -> None:
        stored = PutValue(_SHELF, _NAME, msgspec.json.encode(state).decode())
        await self._store.apply(stored, *changes)
        self._set_state(state)

    def _set_state(self, state: AccessState) -> None:
        self._state = state
        self._policy = build_policy(
            self._settings.allow,
            self._settings.admins,
            approved=(each.principal for each in state.friends if not each.admin),
            appointed=(each.principal for each in state.friends if each.admin),
            claim_open=any(code.kind is CodeKind.CLAIM for code in state.codes),
            keys=self._api_keys,
        )
