"""Asks which model answers: what is found by itself first, else a key or an address."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from agent.probe import ProbedModel
from agent.settings import SERVICES, TargetSettings
from gateway.errors import CannotStart, ConfigError
from gateway.operate.setup.asking import NO_CHECK, Asker, Question, Unanswered, choose, confirm
from gateway.operate.setup.checks import Checks
from gateway.operate.setup.draft import Draft
from gateway.operate.setup.places import Place
from gateway.operate.setup.services import (
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
from sessions.values.finding import Finding
from sessions.values.secret import Secret

_ANOTHER = "another one, by its key or its address"
_DEMO = "none for now: the built-in demo answers"
_MOST_SHOWN = 12

_MISSING = (
    "No model is named: give --model-key env:NAME, file:PATH or -, or --base-url URL of a server, "
    "or --provider demo for the built-in demo."
)


class Wanted(Struct, frozen=True):
    """What the command line says of the model; what is left out is found or asked."""

    provider: str = ""
    base_url: str = ""
    key: str = ""
    name: str = ""

    @property
    def service(self) -> bool:
        """Whether it tells which service is meant."""
        return bool(self.provider or self.base_url or self.key)


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
        if wanted.name:
            named = replace(candidate.settings, name=wanted.name)
            candidate = replace(candidate, settings=named)
        while True:
            chosen = self._settled(candidate)
            if chosen is not None:
                self._keep(chosen)
                return chosen
            candidate = self._pasted()

    # --- which service --------------------------------------------------------------------------

    def _first(self, wanted: Wanted, present: TargetSettings | None) -> _Candidate:
        if wanted.service:
            return self._as_wanted(wanted)
        named = [each for each in self._in_environment() if not _same(each.settings, present)]
        kept = (
            [_Candidate(f"as it is: {_label(present)}", present, present=True)] if present else []
        )
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
            return self._pasted()
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

    def _pasted(self) -> _Candidate:
        """Ask for a key, which tells the service, or for an address."""
        question = Question(
            "model",
            "Key of OpenAI, Anthropic, OpenRouter …, or address of a server (http://…)",
            "demo",
            "none yet: the built-in demo",
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
        settings, present = candidate.settings, candidate.present
        if settings.provider == "demo":
            self._asker.say("  The built-in demo answers until there is a model.")
            return Chosen(settings)
        while True:
            failed, probed = None, None
            if settings.name is None:
                probed = self._checks.model(settings, answers=False)
                failed = _failed(probed)
                if failed is None:
                    settings = replace(settings, name=self._name(settings, probed))
            if failed is None:
                probed = self._checks.model(settings, answers=True)
                failed = _failed(probed)
            if failed is None:
                self._show(probed)
                return Chosen(settings, checked=probed is not None, present=present)
            if failed.subject != "key":
                return self._doubtful(settings, failed, present=present)
            key = self._other_key(failed)
            if key is None:
                return None
            settings, present = replace(settings, api_key=Secret(key)), False

    def _name(self, settings: TargetSettings, probed: ProbedModel | None) -> str | None:
        """Choose among what the service offers."""
        usual_one = SERVICES[settings.provider].model
        if settings.base_url is None:
            return usual_one
        offered = probed.offered if probed else ()
        if len(offered) == 1:
            return offered[0]
        if not offered:
            missing = "The server does not list its models: give --model NAME."
            question = Question("name", "Name of the model", missing=missing)
            return self._asker.ask(question).strip() or None
        best = usual(offered)
        shown = [best, *(each for each in offered if each != best)][:_MOST_SHOWN]
        self._asker.say(f"  It has {len(offered)} models:")
        missing = f"The server has several models, give --model NAME: {_shortened(offered)}."
        more = " or its name" if len(offered) > len(shown) else ""
        question = Question("name", f"Number{more}", best, "1", missing=missing, insists=True)
        return choose(self._asker, question, shown, more=offered)

    def _other_key(self, failed: Finding) -> str | None:
        """Ask for a key that works; None: of another service."""
        question = Question("key", "Its key (Enter: another service)", "", hidden=True)
        self._asker.refuse(question, ConfigError(f"{failed.text}."))
        while True:
            answer = "".join(self._asker.ask(question).split())
            if is_key(answer) or not answer:
                return answer or None
            self._asker.refuse(question, Unanswered("This is no key."))

    def _doubtful(
        self, settings: TargetSettings, failed: Finding, *, present: bool
    ) -> Chosen | None:
        """Something else than the key is in the way."""
        unreached = failed.subject == "service"
        who = "" if settings.base_url else f"{settings.provider}: "
        refused = Question("unchecked", "", hint=NO_CHECK)
        self._asker.refuse(refused, CannotStart(f"{who}{failed.text}. {failed.fix}"))
        question = "Go on without the check" if unreached else "Take it all the same"
        if confirm(self._asker, "unchecked", question, default=unreached):
            return Chosen(settings, present=present)
        return None

    def _show(self, probed: ProbedModel | None) -> None:
        if probed is None:
            return
        self._asker.say(f"  ✓ {probed.label} answers.")
        for finding in probed.findings:
            if finding.level != "ok":
                self._asker.say(f"  ! {finding.text}. {finding.fix}")

    # --- keeping --------------------------------------------------------------------------------

    def _keep(self, chosen: Chosen) -> None:
        settings, draft = chosen.settings, self._draft
        if settings.provider == "demo" and draft.get(("model",)) is None:
            return  # a key in the environment counts, as it does without a configuration
        if draft.get(("model", "name")) != settings.name:
            for key in ("price", "context_window"):  # they were those of another model
                draft.remove(("model", key))
        if not chosen.present:
            draft.put(("model", "provider"), settings.provider)
        self._put("name", settings.name if settings.provider != "demo" else None)
        if chosen.present:
            return
        self._put("base_url", settings.base_url)
        if settings.api_key is None:
            draft.remove(("model", "api_key"))
        else:
            variable = SERVICES[settings.provider].key_variable
            draft.put_secret(("model", "api_key"), variable, settings.api_key.reveal())

    def _put(self, key: str, value: str | None) -> None:
        if value is None:
            self._draft.remove(("model", key))
        else:
            self._draft.put(("model", key), value)


def _candidate(known: Known, key: str) -> _Candidate:
    settings = TargetSettings(
        provider=known.provider,
        base_url=known.base_url or None,
        api_key=Secret(key) if key else None,
    )
    return _Candidate(known.name, settings)


def _demo() -> _Candidate:
    return _Candidate("demo", TargetSettings(provider="demo"))


def _failed(probed: ProbedModel | None) -> Finding | None:
    """What is in the way, apart from a name that is still to be chosen."""
    found = probed.findings if probed else ()
    unnamed = probed is not None and probed.name is None
    failed = (each for each in found if each.level == "fail")
    return next((each for each in failed if not (unnamed and each.subject == "model")), None)


def _same(one: TargetSettings, other: TargetSettings | None) -> bool:
    """Whether both mean the same service, with the same key."""
    parts = ("provider", "base_url", "api_key")
    return other is not None and all(getattr(one, each) == getattr(other, each) for each in parts)


def _label(settings: TargetSettings) -> str:
    return f"{settings.provider}/{settings.name or 'its only model'}"


def _shortened(names: Sequence[str]) -> str:
    left = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {left} more" if left > 0 else "")
