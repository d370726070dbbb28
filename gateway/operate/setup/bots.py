"""Questions about platforms and their tokens; shows the name of each bot."""

import re
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from gateway.config.loader import PlatformSpecs, read_platform
from gateway.errors import CannotStart, ConfigError
from gateway.operate.setup.asking import (
    NO_CHECK_HINT,
    AnswerError,
    Prompter,
    SetupQuestion,
    confirm,
)
from gateway.operate.setup.checks import SetupChecks
from gateway.operate.setup.draft import ConfigDraft
from gateway.operate.setup.places import ConfigTarget
from platforms.core.contract import PlatformSpec
from platforms.core.errors import PlatformError, Unauthorized
from platforms.core.guide import SetupGuide, TokenGuide
from platforms.core.probed import ProbeResult
from platforms.core.registry import PlatformNotInstalled, UnknownPlatform, find_platform
from sessions.values.spelling import did_you_mean

_NONE = "none"
_PREFERRED_ORDER = ("telegram", "discord", "slack")  # all others follow


class ConfiguredBot(Struct, frozen=True):
    """A platform that has been set up."""

    platform: str
    probed: ProbeResult | None = None  # None: not checked


class BotSetup:
    """Set-up of the platforms of one configuration."""

    def __init__(
        self,
        prompter: Prompter,
        draft: ConfigDraft,
        checks: SetupChecks,
        target: ConfigTarget,
        specs: PlatformSpecs,
        find: Callable[[str], PlatformSpec] = find_platform,
    ) -> None:
        self._find = find  # also finds platforms that are not installed
        self._prompter = prompter
        self._draft = draft
        self._checks = checks
        self._target = target
        self._specs = {name: specs[name] for name in _sort_platforms(specs) if specs[name].secrets}

    # --- choosing platforms ---------------------------------------------------------------------

    def choose_platforms(self) -> tuple[str, ...]:
        """Ask for the platforms to set up."""
        configured = [name for name in self._specs if self._is_configured(name)]
        question = SetupQuestion(
            key="platforms",
            prompt=f"Platforms ({', '.join(self._specs)}, or {_NONE})",
            default=", ".join(configured or [*self._specs, _NONE][:1]),
            missing_message="No platform is given: use --platform NAME once or more often "
            f"({_NONE}: only the web page and the terminal), or give a token.",
            must_be_given=not configured,
        )
        while True:
            try:
                return self._parse_platforms(self._prompter.ask(question))
            except AnswerError as error:
                self._prompter.reject(question, error)

    def _is_configured(self, name: str) -> bool:
        """Return True if the file or the environment already has a token of the platform."""
        variables = self._specs[name].secrets.values()
        in_file = self._draft.get(("platforms", name)) is not None
        return in_file or any(map(self._target.environ.get, variables))

    def _parse_platforms(self, answer: str) -> tuple[str, ...]:
        words = re.split(r"[\s,]+", answer.strip().lower())
        return () if words == [_NONE] else tuple(dict.fromkeys(map(self._match_platform, words)))

    def _match_platform(self, word: str) -> str:
        matching = [name for name in self._specs if name.startswith(word)]
        if word in self._specs or (word and len(matching) == 1):
            return word if word in self._specs else matching[0]
        try:
            self._find(word)
        except PlatformNotInstalled as error:
            raise AnswerError(str(error)) from error
        except UnknownPlatform:
            pass
        hint = did_you_mean(word, self._specs)
        msg = f"There is no platform {word!r}{hint}. Choose from {', '.join(self._specs)}, or {_NONE}."
        raise AnswerError(msg)

    # --- one platform ---------------------------------------------------------------------------

    def set_up(self, name: str) -> ConfiguredBot:
        """Ask for a platform's tokens until they work, or the person keeps them unchecked."""
        return _PlatformSetup(self._prompter, self._draft, self._target, self._specs[name]).run(
            self._checks
        )


class _PlatformSetup:
    """Set-up of one platform; `_entered` holds tokens that the file does not have yet."""

    def __init__(
        self, prompter: Prompter, draft: ConfigDraft, target: ConfigTarget, spec: PlatformSpec
    ) -> None:
        self._prompter = prompter
        self._draft = draft
        self._target = target
        self._spec = spec
        self._title = spec.name.capitalize()
        self._guide = spec.guide or _default_guide(spec)
        self._table = draft.get(("platforms", spec.name)) or {}
        self._entered: dict[str, str] = {}
        self._steps_shown = False  # the steps to get the tokens

    def run(self, checks: SetupChecks) -> ConfiguredBot:
        self._take_environment()
        missing = [token for token in self._required_tokens() if token.key not in self._entered]
        while True:
            for token in missing:
                self._ask(token)
            found = self._check(checks)
            if found is not None:
                self._save()
                return found
            missing = list(self._required_tokens())

    def _required_tokens(self) -> Iterator[TokenGuide]:
        for token in self._guide.tokens:
            if not token.unless_mode or token.unless_mode != self._table.get("mode"):
                yield token

    # --- asking

    def _take_environment(self) -> None:
        for token in self._required_tokens():
            variable = self._spec.secrets.get(token.key, "")
            found = self._target.environ.get(variable, "").strip()
            if found and token.key not in self._table:
                self._entered[token.key] = found
                self._prompter.say(f"{self._title} {token.label}: taken from {variable}.")

    def _build_question(self, token: TokenGuide) -> SetupQuestion:
        exists = token.key in self._entered or token.key in self._table
        return SetupQuestion(
            key=f"{self._spec.name}.{token.key}",
            prompt=f"{self._title} {token.label}",
            default="" if exists else None,
            shown_default="keep it" if exists else "",
            is_secret=True,
            missing_message=f"{self._title} needs its {token.label}: use {self._flag_name(token)} env:NAME, "
            f"file:PATH or -, or set {self._spec.secrets.get(token.key)}.",
            is_complete=lambda text: bool(token.extract(text)),
        )

    def _flag_name(self, token: TokenGuide) -> str:
        return f"--{self._spec.name}-{token.key}".replace("_", "-")

    def _ask(self, token: TokenGuide) -> None:
        """Ask for one token; Enter keeps an existing token, or shows how to get one."""
        question = self._build_question(token)
        if question.default is None and not self._steps_shown:
            self._print_lines(token.steps)
        while True:
            answer = self._prompter.ask(question)
            found = token.extract(answer)
            if found:
                self._entered[token.key] = found
                return
            if answer.strip():
                msg = (
                    f"This is not a {self._title} {token.label}, which looks like {token.example}."
                )
                self._prompter.reject(question, AnswerError(msg))
                continue
            if question.default is not None:
                return
            msg = f"{self._title} needs a {token.label}. Ctrl-C stops setup and changes nothing."
            self._prompter.reject(question, AnswerError(msg))
            if self._guide.details:
                self._prompter.say(self._guide.details())
            else:
                self._print_lines(token.steps)

    def _print_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._prompter.say(f"  {line}")

    # --- checking

    def _check(self, checks: SetupChecks) -> ConfiguredBot | None:
        """Check the tokens with the platform; return None if other tokens are needed."""
        *_, last = self._required_tokens()
        question = self._build_question(last)
        table = {**self._table, **self._entered}
        name, target = self._spec.name, self._target
        try:
            config = read_platform(name, table, target.path, target.environ, {name: self._spec})
            probed = checks.probe_bot(self._spec, config)
        except ConfigError as error:
            self._prompter.reject(question, error)
            return None
        except Unauthorized as error:
            self._prompter.reject(question, ConfigError(f"{error}."))
            tokens = list(self._required_tokens())
            if len(tokens) == 1:  # with several tokens, the wrong one is unknown
                self._entered.clear()
            for token in tokens:
                self._print_lines(token.steps)
            self._steps_shown = True
            return None
        except PlatformError as error:
            return self._confirm_unchecked(question, error)
        if probed is not None:
            self._show_bot(probed)
        return ConfiguredBot(name, probed)

    def _confirm_unchecked(
        self, question: SetupQuestion, error: PlatformError
    ) -> ConfiguredBot | None:
        refused = replace(question, hint=NO_CHECK_HINT)
        self._prompter.reject(refused, CannotStart(f"{error}, so the token could not be checked."))
        if confirm(self._prompter, "unchecked", "Continue without the check", default=True):
            return ConfiguredBot(self._spec.name)
        return None

    def _show_bot(self, probed: ProbeResult) -> None:
        name = f" ({probed.name})" if probed.name not in {"", probed.handle.lstrip("@")} else ""
        self._prompter.say(f"  ✓ This is {probed.handle}{name} on {self._title}.")
        for finding in probed.findings:
            if finding.level != "ok":
                self._prompter.warn(f"{finding.text}. {finding.fix}")
        if probed.link and self._guide.link:
            self._prompter.say(f"  {self._guide.link} {probed.link}")

    # --- saving

    def _save(self) -> None:
        for key, text in self._entered.items():
            variable = self._spec.secrets.get(key, f"{self._spec.name}_{key}".upper())
            self._draft.put_secret(("platforms", self._spec.name, key), variable, text)


def _sort_platforms(names: Iterable[str]) -> list[str]:
    known = sorted(names)
    return [
        *(name for name in _PREFERRED_ORDER if name in known),
        *(n for n in known if n not in _PREFERRED_ORDER),
    ]


def _default_guide(spec: PlatformSpec) -> SetupGuide:
    """Return the questions for a platform without a guide."""
    return SetupGuide(
        tuple(
            TokenGuide(
                key=key,
                label=key.replace("_", " "),
                pattern=r"\S+",
                example="one word",
                steps=(f"You can also set it in {name}.",),
            )
            for key, name in spec.secrets.items()
        )
    )
