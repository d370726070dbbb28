"""Asks which model answers: what is found by itself first, else a key or an address."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from agent.probe import ProbedModel
from agent.settings import SERVICES, TargetSettings
from gateway.errors import CannotStart, ConfigError
from gateway.setup.asking import Asker, Question, Unanswered, choose, confirm
from gateway.setup.checks import Checks
from gateway.setup.draft import Draft
from gateway.setup.known import (
    ANTHROPIC,
    OPENAI,
    Known,
    is_address,
    is_key,
    is_near,
    known_by_key,
    usual,
    whole_address,
)
from gateway.setup.places import Place
from sessions.values.finding import Finding
from sessions.values.secret import Secret

_ANOTHER = "another one, by its key or its address"
_DEMO = "none for now: the built-in demo answers"
_MOST_SHOWN = 12
_VARIABLE = "OPENAI_API_KEY"  # names the file of a key whose service has no variable of its own

_MISSING = (
    "No model is named: give --model-key env:NAME, file:PATH or -, or --base-url URL of a server, "
    "or --provider demo for the built-in demo."
)


class Wanted(Struct, frozen=True):
    """What the command line says of the model; what is left out is found or asked."""

    provider: str = ""
    base_url: str = ""
    key: str = ""

    @property
    def says_nothing(self) -> bool:
        """Whether it leaves everything open."""
        return self == Wanted()


class Chosen(Struct, frozen=True):
    """The model that answers; `present`: the one that was configured before."""

    settings: TargetSettings
    checked: bool = False
    present: bool = False

    @property
    def is_paid(self) -> bool:
        """Whether its answers may cost money."""
        return self.settings.provider != "demo" and not is_near(self.settings.base_url)


class _Candidate(Struct, frozen=True):
    words: str
    settings: TargetSettings
    present: bool = False


class Model:
    """The model of one configuration."""

    def __init__(self, asker: Asker, draft: Draft, checks: Checks, place: Place) -> None:
        self._asker = asker
        self._draft = draft
        self._checks = checks
        self._environ = place.environ

    def choose(self, wanted: Wanted, present: TargetSettings | None) -> Chosen:
        """Ask until there is a model that answers, or that is to be taken as it is."""
        candidate = self._first(wanted, present)
        while True:
            chosen = self._settled(candidate)
            if chosen is not None:
                self._keep(chosen)
                return chosen
            candidate = self._pasted()

    # --- which service --------------------------------------------------------------------------

    def _first(self, wanted: Wanted, present: TargetSettings | None) -> _Candidate:
        if not wanted.says_nothing:
            return self._as_wanted(wanted)
        named = self._in_environment()
        kept = [_Candidate(f"as it is: {_label(present)}", present, present=True)] if present else []
        if len(named) == 1 and not kept:
            self._asker.say(f"Model: {named[0].words}.")
            return named[0]
        found = [*kept, *named]
        if not named:
            found += [
                _Candidate(
                    f"{each.name} on this machine, {_shortened(each.models)}",
                    TargetSettings(provider="openai", base_url=each.base_url),
                )
                for each in self._checks.servers()
            ]
        if not found:
            return self._pasted(default="demo")
        self._asker.say("Which model answers?")
        options = [*(each.words for each in found), _ANOTHER, _DEMO]
        question = Question("model", "Its number", options[0], "1", missing=_MISSING)
        answer = choose(self._asker, question, options)
        if answer == _DEMO:
            return _demo()
        by_words = {each.words: each for each in found}
        return by_words[answer] if answer in by_words else self._pasted()

    def _as_wanted(self, wanted: Wanted) -> _Candidate:
        key = "".join(wanted.key.split())
        known = known_by_key(key) or OPENAI
        provider = wanted.provider or ("openai" if wanted.base_url else known.provider)
        base_url = whole_address(wanted.base_url) if wanted.base_url else None
        if base_url is None and not wanted.provider:
            base_url = known.base_url
        if not key and base_url is None:
            variable = SERVICES[provider].key_variable
            key = self._environ.get(variable, "").strip() if variable else ""
            if variable and not key:
                msg = f"{provider} needs a key: give --model-key env:NAME, file:PATH or -, or set {variable}."
                raise Unanswered(msg)
        return _candidate(Known(provider, provider, base_url), key)

    def _in_environment(self) -> list[_Candidate]:
        """Services whose key or address is set."""
        address = self._environ.get("OPENAI_BASE_URL", "").strip()
        found = []
        for known in (OPENAI, ANTHROPIC):
            service = SERVICES[known.provider]
            key = self._environ.get(service.key_variable, "").strip()
            base_url = address if service.url_variable else ""
            if key or base_url:
                variables = [service.key_variable] * bool(key) + [service.url_variable] * bool(
                    base_url
                )
                name = base_url or known.name
                named = Known(f"{name} (from {' and '.join(variables)})", known.provider, base_url)
                found.append(_candidate(named, key))
        return found

    def _pasted(self, default: str = "") -> _Candidate:
        """Ask for a key, which tells the service, or for an address."""
        question = Question(
            "model",
            "Key of OpenAI, Anthropic, OpenRouter …, or address of a server (http://…)",
            default,
            "none yet: the built-in demo" if default else "",
            hidden=True,
            missing=_MISSING,
            insists=True,
        )
        while True:
            answer = "".join(self._asker.ask(question).split())
            if answer == "demo":
                return _demo()
            if is_address(answer):
                return _candidate(Known("the server", "openai", whole_address(answer)), "")
            if is_key(answer):
                known = known_by_key(answer)
                return _candidate(known or self._service_of_key(), answer)
            words = "This is neither a key nor an address such as http://10.0.0.5:8000/v1."
            self._asker.refuse(question, Unanswered(words))

    def _service_of_key(self) -> Known:
        question = Question("base_url", "Address of the service that this key is for (https://…)")
        while True:
            answer = self._asker.ask(question).strip()
            if is_address(answer):
                return Known("the service", "openai", whole_address(answer))
            words = "This is no address, such as https://openrouter.ai/api/v1."
            self._asker.refuse(question, Unanswered(words))

    # --- does it work ---------------------------------------------------------------------------

    def _settled(self, candidate: _Candidate) -> Chosen | None:
        """Find the model's name and have it answer; None when another one is needed."""
        settings = candidate.settings
        if settings.provider == "demo":
            self._asker.say("  The built-in demo answers until there is a model.")
            return Chosen(settings, present=candidate.present)
        while True:
            named = self._named(settings, candidate)
            if isinstance(named, TargetSettings):
                probed = self._checks.model(named, answers=True)
                if probed is None:
                    return Chosen(named, present=candidate.present)
                if probed.works:
                    self._show(probed)
                    return Chosen(named, checked=True, present=candidate.present)
                failed = _failed(probed)
            else:
                failed = named
            if failed is None:
                return None
            if failed.subject == "key":
                settings = self._other_key(settings, failed)
                candidate = replace(candidate, present=False)
            else:
                return self._doubtful(settings, failed, candidate)

    def _named(
        self, settings: TargetSettings, candidate: _Candidate
    ) -> TargetSettings | Finding | None:
        """Settle which model it is; a finding tells why that cannot be."""
        name = self._asker_name()
        if name:
            return replace(settings, name=name)
        probed = None
        if settings.name is None:
            probed = self._checks.model(settings, answers=False)
        return settings
