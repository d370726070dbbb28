"""Asks for the platforms and their tokens, and shows each bot's name."""

import re
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from gateway.config.loader import Specs, read_platform
from gateway.errors import CannotStart, ConfigError
from gateway.operate.setup.asking import NO_CHECK, Asker, Question, Unanswered, confirm
from gateway.operate.setup.checks import Checks
from gateway.operate.setup.draft import Draft
from gateway.operate.setup.places import Place
from platforms.core.contract import PlatformSpec
from platforms.core.errors import PlatformError, Unauthorized
from platforms.core.guide import Guide, Token
from platforms.core.probed import Probed
from platforms.core.registry import PlatformNotInstalled, UnknownPlatform, find
from sessions.values.spelling import nearest

_NONE = "none"
_FIRST = ("telegram", "discord", "slack")  # in this order; others follow


class Bot(Struct, frozen=True):
    """A platform that is set up."""

    platform: str
    probed: Probed | None = None  # None: it was not asked


class Bots:
    """The platforms of one configuration."""

    def __init__(
        self,
        asker: Asker,
        draft: Draft,
        checks: Checks,
        place: Place,
        specs: Specs,
        find: Callable[[str], PlatformSpec] = find,
    ) -> None:
        self._find = find  # also knows those that are not installed
        self._asker = asker
        self._draft = draft
        self._checks = checks
        self._place = place
        self._specs = {name: specs[name] for name in _in_order(specs) if specs[name].secrets}

    # --- which ----------------------------------------------------------------------------------

    def choose(self) -> tuple[str, ...]:
        """Ask which platforms to set up."""
        there = [name for name in self._specs if self._is_there(name)]
        question = Question(
            "platforms",
            f"Platforms ({', '.join(self._specs)}, or {_NONE})",
            ", ".join(there or [*self._specs, _NONE][:1]),
            missing="No platform is named: give --platform NAME, one or several times "
            f"({_NONE}: only the web page and the terminal), or a token.",
            insists=not there,
        )
        while True:
            try:
                return self._read(self._asker.ask(question))
            except Unanswered as error:
                self._asker.refuse(question, error)

    def _is_there(self, name: str) -> bool:
        """Whether it is configured already, or a token of it lies in the environment."""
        variables = self._specs[name].secrets.values()
        in_file = self._draft.get(("platforms", name)) is not None
        return in_file or any(map(self._place.environ.get, variables))

    def _read(self, answer: str) -> tuple[str, ...]:
        words = re.split(r"[\s,]+", answer.strip().lower())
        return () if words == [_NONE] else tuple(dict.fromkeys(map(self._name, words)))

    def _name(self, word: str) -> str:
        begun = [name for name in self._specs if name.startswith(word)]
        found = begun[0] if len(begun) == 1 else nearest(word, self._specs)
        if found:
            return found
        try:
            self._find(word)
        except PlatformNotInstalled as error:
            raise Unanswered(str(error)) from error
        except UnknownPlatform:
            pass
        msg = f"There is no platform {word!r}: name {', '.join(self._specs)}, or {_NONE}."
        raise Unanswered(msg)

    # --- one ------------------------------------------------------------------------------------

    def set_up(self, name: str) -> Bot:
        """Ask for a platform's tokens until they work, or are to be taken as they are."""
        return _SetUp(self._asker, self._draft, self._place, self._specs[name]).run(self._checks)


class _SetUp:
    """One platform; `said` are the tokens that the file does not have yet."""

    def __init__(self, asker: Asker, draft: Draft, place: Place, spec: PlatformSpec) -> None:
        self._asker = asker
        self._draft = draft
        self._place = place
        self._spec = spec
        self._title = spec.name.capitalize()
        self._guide = spec.guide or _plain(spec)
        self._table = draft.get(("platforms", spec.name)) or {}
        self._said: dict[str, str] = {}
        self._told = False  # how to come by the tokens

    def run(self, checks: Checks) -> Bot:
        self._take_environment()
        open_ones = [token for token in self._tokens() if token.key not in self._said]
        while True:
            for token in open_ones:
                self._ask(token)
            found = self._checked(checks)
            if found is not None:
                self._keep()
                return found
            open_ones = list(self._tokens())

    def _tokens(self) -> Iterator[Token]:
        for token in self._guide.tokens:
            if not token.unless_mode or token.unless_mode != self._table.get("mode"):
                yield token

    # --- asking

    def _take_environment(self) -> None:
        for token in self._tokens():
            variable = self._spec.secrets.get(token.key, "")
            found = self._place.environ.get(variable, "").strip()
            if found and token.key not in self._table:
                self._said[token.key] = found
                self._asker.say(f"{self._title} {token.words}: taken from {variable}.")

    def _question(self, token: Token) -> Question:
        there = token.key in self._said or token.key in self._table
        return Question(
            f"{self._spec.name}.{token.key}",
            f"{self._title} {token.words}",
            "" if there else None,
            "keep it" if there else "",
            hidden=True,
            missing=f"{self._title} needs its {token.words}: give {self._flag(token)} env:NAME, "
            f"file:PATH or -, or set {self._spec.secrets.get(token.key)}.",
            whole=lambda text: bool(token.found_in(text)),
        )

    def _flag(self, token: Token) -> str:
        return f"--{self._spec.name}-{token.key}".replace("_", "-")

    def _ask(self, token: Token) -> None:
        """Ask for one token; Enter keeps the one that is there, else tells how to get one."""
        question = self._question(token)
        if question.default is None and not self._told:
            self._tell(token.steps)
        while True:
            answer = self._asker.ask(question)
            found = token.found_in(answer)
            if found:
                self._said[token.key] = found
                return
            if answer.strip():
                msg = (
                    f"This is no {self._title} {token.words}: such a one looks like {token.looks}."
                )
                self._asker.refuse(question, Unanswered(msg))
            elif question.default is not None:
                return
            elif self._guide.at_length:
                self._asker.say(self._guide.at_length())
            else:
                self._tell(token.steps)

    def _tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._asker.say(f"  {line}")

    # --- checking

    def _checked(self, checks: Checks) -> Bot | None:
        """Ask the platform; None when other tokens are needed."""
        *_, last = self._tokens()
        question = self._question(last)
        table = {**self._table, **self._said}
        name, place = self._spec.name, self._place
        try:
            config = read_platform(name, table, place.path, place.environ, {name: self._spec})
            probed = checks.bot(self._spec, config)
        except ConfigError as error:
            self._asker.refuse(question, error)
            return None
        except Unauthorized as error:
            self._asker.refuse(question, ConfigError(f"{error}."))
            tokens = list(self._tokens())
            if len(tokens) == 1:  # else nobody knows here which one it is
                self._said.clear()
            for token in tokens:
                self._tell(token.steps)
            self._told = True
            return None
        except PlatformError as error:
            return self._unreached(question, error)
        if probed is not None:
            self._show(probed)
        return Bot(name, probed)

    def _unreached(self, question: Question, error: PlatformError) -> Bot | None:
        refused = replace(question, hint=NO_CHECK)
        self._asker.refuse(refused, CannotStart(f"{error}, so nothing is known of the token."))
        if confirm(self._asker, "unchecked", "Go on without the check", default=True):
            return Bot(self._spec.name)
        return None

    def _show(self, probed: Probed) -> None:
        name = f" ({probed.name})" if probed.name not in {"", probed.handle.lstrip("@")} else ""
        self._asker.say(f"  ✓ This is {probed.handle}{name} on {self._title}.")
        for finding in probed.findings:
            if finding.level != "ok":
                self._asker.say(f"  ! {finding.text}. {finding.fix}")
        if probed.link and self._guide.link:
            self._asker.say(f"  {self._guide.link} {probed.link}")

    # --- keeping

    def _keep(self) -> None:
        for key, text in self._said.items():
            variable = self._spec.secrets.get(key, f"{self._spec.name}_{key}".upper())
            self._draft.put_secret(("platforms", self._spec.name, key), variable, text)


def _in_order(names: Iterable[str]) -> list[str]:
    known = sorted(names)
    return [*(name for name in _FIRST if name in known), *(n for n in known if n not in _FIRST)]


def _plain(spec: PlatformSpec) -> Guide:
    """What can be asked for a platform that says nothing about it."""
    return Guide(
        tuple(
            Token(key, key.replace("_", " "), r"\S+", "one word", (f"It may stand in {name}.",))
            for key, name in spec.secrets.items()
        )
    )
