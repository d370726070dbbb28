"""Who is let in besides the configuration: the first owner's claim, and pairing.

What it knows is one durable value, written whole; nothing else writes it.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence

import msgspec

from gateway.access.pairing import (
    Code,
    Expired,
    Full,
    Offer,
    Redeemed,
    Wrong,
    claim_in,
    digest_of,
    new_code,
    next_allowed_attempt,
    offer,
    redeem,
)
from gateway.access.policy import Person, Policy, parse_admin, policy
from gateway.settings import AccessSettings
from platforms.core.contract import InboundMessage
from sessions.store.store import SessionStore
from sessions.values.clock import Clock, rfc3339

_SHELF, _NAME = "people", "book"
_DAY = 86_400_000
_MOST_MENTIONS = 1_000
_ADMINS = ""  # all of them together, where wrong codes are counted


class Friend(msgspec.Struct, frozen=True):
    """Somebody who was let in by a code."""

    principal: str
    name: str
    admin: bool
    since: int


class Failures(msgspec.Struct, frozen=True):
    """Wrong codes of one person."""

    count: int
    last: int


class Book(msgspec.Struct, frozen=True):
    """Everything that is known about people."""

    key: str
    codes: tuple[Code, ...] = ()
    friends: tuple[Friend, ...] = ()
    failures: dict[str, Failures] = {}


class Greeting(msgspec.Struct, frozen=True):
    """What a stranger is told, and what the admins are told about it; either may be empty."""

    notice: str = ""
    fields: dict[str, str | int] = {}
    admins: str = ""
    admin_fields: dict[str, str | int] = {}


async def stored_book(store: SessionStore) -> Book | None:
    """Read what is kept; None before the first start."""
    stored = await store.get_value(_SHELF, _NAME)
    return None if stored is None else msgspec.json.decode(stored, type=Book)


class People:
    """The gateway's memory of who may come in."""

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
        self._book = Book(key="")
        self._policy = Policy()
        self._mentions: dict[str, int] = {}

    async def open(self) -> None:
        """Read what is known; the very first time make this installation's key."""
        book = await stored_book(self._store)
        if book is None:
            await self._write(Book(key=secrets.token_hex(32)))
        else:
            self._take(book)

    def adopt(self, settings: AccessSettings) -> None:
        """Other entries are configured from now on."""
        self._settings = settings
        self._take(self._book)

    def policy(self) -> Policy:
        """Who is let in at this moment."""
        return self._policy

    @property
    def has_admin(self) -> bool:
        """Whether somebody on a platform is an admin; terminal and page always have their owner."""
        return bool(self._settings.admins) or any(friend.admin for friend in self._book.friends)

    def admins(self) -> tuple[str, ...]:
        """Stable ids of the admins who can be written to."""
        named = [each for each in self._settings.admins if isinstance(parse_admin(each), Person)]
        return (*named, *(friend.principal for friend in self._book.friends if friend.admin))

    # --- strangers ------------------------------------------------------------------------------

    async def meet(self, message: InboundMessage, principal: str, *, direct: bool) -> Greeting:
        """Somebody who is not let in wrote: a claim, a request to be let in, or a mention."""
        if not message.sender.id:  # nobody could be let in under it
            return Greeting()
        name = message.sender.name or principal
        if not direct:
            return self._mentioned(principal, name, message.address.chat)
        code = claim_in(message.text)
        if code:
            claimed = await self.claim(principal, name, code)
            return Greeting("claimed" if claimed else "claim_refused")
        if not self._settings.pairing:
            return Greeting()
        return await self._request(message.address.platform, principal, name)

    def _mentioned(self, principal: str, name: str, chat: str) -> Greeting:
        now = self._clock.now()
        if now - self._mentions.get(principal, -_DAY) < _DAY:
            return Greeting()
        if len(self._mentions) >= _MOST_MENTIONS:
            self._mentions.clear()
        self._mentions[principal] = now
        fields: dict[str, str | int] = {"name": name, "principal": principal, "chat": chat}
        return Greeting(admins="refused_mention", admin_fields=fields)

    async def _request(self, platform: str, principal: str, name: str) -> Greeting:
        async with self._lock:
            now = self._clock.now()
            match offer(self._book.codes, platform, principal, now):
                case Offer():
                    text = new_code(self._choose)
                    code = Code("pair", self._digest(text), platform, principal, now, name)
                    await self._change(codes=(*self._alive(), code))
                    fields: dict[str, str | int] = {
                        "name": name,
                        "principal": principal,
                        "code": text,
                    }
                    return Greeting("pairing_code", {"code": text}, "pair_request", fields)
                case Full():
                    return Greeting(
                        admins="refused_mention",
                        admin_fields={"name": name, "principal": principal, "chat": platform},
                    )
                case _:
                    return Greeting("pairing_pending")

    # --- codes ----------------------------------------------------------------------------------

    async def new_claim(self) -> str:
        """Make a code by which the first admin shows up; an older one is void from now on."""
        async with self._lock:
            text = new_code(self._choose)
            code = Code("claim", self._digest(text), "", "", self._clock.now())
            kept = tuple(each for each in self._alive() if each.kind != "claim")
            await self._change(codes=(*kept, code))
            return text

    async def claim(self, principal: str, name: str, text: str) -> bool:
        """Make somebody an admin, if the code is good; wrong ones make later tries wait."""
        async with self._lock:
            found = await self._redeem(principal, text, "claim")
            if found is None:
                return False
            friend = Friend(principal, name, admin=True, since=self._clock.now())
            await self._let_in(friend, found)
            return True

    async def approve(self, text: str) -> tuple[str, str] | None:
        """Let in whom the code belongs to."""
        async with self._lock:
            found = await self._redeem(_ADMINS, text, "pair")
            if found is None:
                return None
            friend = Friend(found.principal, found.name, admin=False, since=self._clock.now())
            await self._let_in(friend, found)
            return found.principal, found.name

    async def revoke(self, principal: str) -> bool:
        """Let somebody in no more; acts on the next message."""
        async with self._lock:
            left = tuple(each for each in self._book.friends if each.principal != principal)
            codes = tuple(each for each in self._alive() if each.principal != principal)
            if len(left) == len(self._book.friends) and codes == self._alive():
                return False
            await self._change(friends=left, codes=codes)
            return True

    def listed(self) -> list[dict[str, str]]:
        """Open requests and people let in, for a person to read."""
        waiting = [
            {"principal": code.principal, "name": code.name, "state": "asks to be let in"}
            for code in self._alive()
            if code.kind == "pair"
        ]
        known = [
            {
                "principal": each.principal,
                "name": each.name,
                "state": f"{'admin' if each.admin else 'member'} since {rfc3339(each.since)[:10]}",
            }
            for each in self._book.friends
        ]
        return waiting + known

    async def _redeem(self, who: str, text: str, kind: str) -> Code | None:
        now = self._clock.now()
        tried = self._book.failures.get(who, Failures(0, 0))
        if now < next_allowed_attempt(tried.count, tried.last):
            return None
        key = bytes.fromhex(self._book.key)
        match redeem(self._book.codes, text, key, "claim" if kind == "claim" else "pair", now):
            case Redeemed(code=code):
                return code
            case Wrong() | Expired():
                failures = {**self._book.failures, who: Failures(tried.count + 1, now)}
                recent = {name: each for name, each in failures.items() if now - each.last < _DAY}
                await self._change(failures=recent)
        return None

    async def _let_in(self, friend: Friend, code: Code) -> None:
        """In one write: the code is spent and the person is in."""
        others = tuple(each for each in self._book.friends if each.principal != friend.principal)
        codes = tuple(each for each in self._alive() if each.digest != code.digest)
        failures = {k: v for k, v in self._book.failures.items() if k != friend.principal}
        await self._change(friends=(*others, friend), codes=codes, failures=failures)

    # --- the book -------------------------------------------------------------------------------

    def _digest(self, text: str) -> str:
        return digest_of(text, bytes.fromhex(self._book.key))

    def _alive(self) -> tuple[Code, ...]:
        now = self._clock.now()
        return tuple(code for code in self._book.codes if now < code.expires_at)

    async def _change(self, **fields: object) -> None:
        await self._write(msgspec.structs.replace(self._book, **fields))

    async def _write(self, book: Book) -> None:
        await self._store.put_value(_SHELF, _NAME, msgspec.json.encode(book).decode())
        self._take(book)

    def _take(self, book: Book) -> None:
        self._book = book
        self._policy = policy(
            self._settings.allow,
            self._settings.admins,
            approved=(each.principal for each in book.friends if not each.admin),
            appointed=(each.principal for each in book.friends if each.admin),
            claim=any(code.kind == "claim" for code in book.codes),
        )
