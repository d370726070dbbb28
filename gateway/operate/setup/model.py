"""Questions about the model: suggests keys and servers found here, else asks for a key or URL."""

from collections.abc import Sequence

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from agent.probe import ProbedModel, ProbeSubject
from agent.settings import SERVICES, TargetSettings
from gateway.config.own_address import is_own_address
from gateway.errors import CannotStart, ConfigError
from gateway.operate.setup.asking import (
    NO_CHECK_HINT,
    AnswerError,
    Prompter,
    SetupQuestion,
    choose,
    parse_yes_no,
)
from gateway.operate.setup.checks import SetupChecks
from gateway.operate.setup.draft import ConfigDraft
from gateway.operate.setup.places import ConfigTarget
from gateway.operate.setup.services import (
    ANTHROPIC,
    OPENAI,
    KnownService,
    assume_scheme,
    complete_url,
    is_local_network,
    is_url,
    looks_like_key,
    preferred_model,
    service_of_key,
)
from gateway.settings import HttpSettings
from sessions.values.finding import Finding
from sessions.values.secret import Secret

_ANOTHER_OPTION = "another model, by key or address"
_DEMO_OPTION = "none for now: use the built-in demo"
_MAX_SHOWN = 12

_MISSING_MESSAGE = (
    "No model is given: use --model-key env:NAME, file:PATH or -, or --base-url URL of a server, "
    "or --provider demo for the built-in demo."
)


class RequestedModel(Struct, frozen=True):
    """The model given on the command line; missing parts are found or asked for."""

    provider: str = ""
    base_url: str = ""
    key: str = ""
    name: str = ""

    @property
    def names_service(self) -> bool:
        """True if the service is given."""
        return bool(self.provider or self.base_url or self.key)


class ChosenModel(Struct, frozen=True):
    """The model to use; `was_configured` if taken from the current configuration."""

    settings: TargetSettings
    checked: bool = False
    was_configured: bool = False

    @property
    def is_paid(self) -> bool:
        """True if answers may cost money."""
        return self.settings.provider != "demo" and not is_local_network(self.settings.base_url)


class _Candidate(Struct, frozen=True):
    label: str
    settings: TargetSettings
    was_configured: bool = False
    is_readable: bool = True  # False: the section of the file has a problem, so it is not checked


class ModelSetup:
    """Set-up of the model of one configuration."""

    def __init__(
        self, prompter: Prompter, draft: ConfigDraft, checks: SetupChecks, target: ConfigTarget
    ) -> None:
        self._prompter = prompter
        self._draft = draft
        self._checks = checks
        self._environ = target.environ
        self._http = _http_settings(draft)
        self._unasked_names: set[str | None] = set()  # names that stay out of a kept section

    def choose(self, requested: RequestedModel, present: TargetSettings | None) -> ChosenModel:
        """Ask until a model answers, or the person keeps one unchecked."""
        self._unasked_names.add(present.name if present else None)
        candidate = self._first_candidate(requested, present)
        if requested.name:
            named = replace(candidate.settings, name=requested.name)
            candidate = replace(candidate, settings=named)
        while True:
            chosen = self._verify(candidate)
            if isinstance(chosen, ChosenModel):
                self._save(chosen)
                return chosen
            candidate = chosen or self._ask_service()

    # --- choosing the service -------------------------------------------------------------------

    def _first_candidate(
        self, requested: RequestedModel, present: TargetSettings | None
    ) -> _Candidate:
        if requested.names_service:
            return self._requested_candidate(requested)
        named = [
            candidate
            for candidate in self._environment_candidates()
            if not _is_same_service(candidate.settings, present)
        ]
        kept = (
            [_Candidate(f"as it is: {_model_label(present)}", present, was_configured=True)]
            if present
            else [_unreadable_candidate()]
            if has_model(self._draft)
            else []
        )
        if len(named) == 1 and not kept:
            self._prompter.say(f"Model: {named[0].label}.")
            return named[0]
        found = [*kept, *named]
        if not named:
            found += [
                _Candidate(
                    f"{server.name} on this machine, {_abbreviate(server.models)}",
                    TargetSettings(provider="openai", base_url=server.base_url),
                )
                for server in self._checks.find_servers()
            ]
        if not found:
            return self._ask_service()
        self._prompter.say("Which model should answer?")
        options = [*(candidate.label for candidate in found), _ANOTHER_OPTION, _DEMO_OPTION]
        question = SetupQuestion(
            key="model",
            prompt="Number",
            default=options[0],
            shown_default="1",
            missing_message=_MISSING_MESSAGE,
        )
        answer = choose(self._prompter, question, options)
        if answer == _DEMO_OPTION:
            return _demo_candidate()
        by_words = {candidate.label: candidate for candidate in found}
        return by_words[answer] if answer in by_words else self._ask_service()

    def _requested_candidate(self, requested: RequestedModel) -> _Candidate:
        key = "".join(requested.key.split())
        known = service_of_key(key) or OPENAI
        provider = requested.provider or ("openai" if requested.base_url else known.provider)
        base_url = complete_url(requested.base_url) if requested.base_url else None
        if base_url is None and not requested.provider:
            base_url = known.base_url
        if not key and base_url is None:
            variable = SERVICES[provider].key_variable
            key = self._environ.get(variable, "").strip() if variable else ""
            if variable and not key:
                msg = f"{provider} needs a key: use --model-key env:NAME, file:PATH or -, or set {variable}."
                raise AnswerError(msg)
        return _build_candidate(KnownService(provider, provider, base_url), key)

    def _environment_candidates(self) -> list[_Candidate]:
        """Return the services whose key or URL is in the environment."""
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
                named = KnownService(
                    f"{name} (from {' and '.join(variables)})", known.provider, base_url
                )
                found.append(_build_candidate(named, key))
        return found

    def _ask_service(self) -> _Candidate:
        """Ask for a key, which identifies the service, or for a URL."""
        question = SetupQuestion(
            key="model",
            prompt="Key of OpenAI, Anthropic, OpenRouter …, or address of a server (http://…)",
            default="demo",
            shown_default="none yet: the built-in demo",
            is_secret=True,
            missing_message=_MISSING_MESSAGE,
            must_be_given=True,
        )
        while True:
            answer = self._complete_address("".join(self._prompter.ask(question).split()))
            if answer == "demo":
                return _demo_candidate()
            if is_url(answer):
                return _server_candidate(answer)
            if looks_like_key(answer):
                known = service_of_key(answer)
                return _build_candidate(known or self._ask_service_of_key(), answer)
            words = "This is neither a key nor an address such as http://10.0.0.5:8000/v1."
            self._prompter.reject(question, AnswerError(words))

    def _ask_service_of_key(self) -> KnownService:
        question = SetupQuestion(
            key="base_url", prompt="Address of the service that this key is for (https://…)"
        )
        while True:
            answer = self._complete_address(self._prompter.ask(question).strip())
            if is_url(answer):
                return KnownService("the service", "openai", complete_url(answer))
            words = "This is not an address such as https://openrouter.ai/api/v1."
            self._prompter.reject(question, AnswerError(words))

    def _complete_address(self, answer: str) -> str:
        """Return an answer; complete an address without `http://`, and say so."""
        url = assume_scheme(answer)
        if url is None:
            return answer
        self._prompter.say(f"  The address is taken as {complete_url(url)}.")
        return url

    # --- checking the model ---------------------------------------------------------------------

    def _verify(self, candidate: _Candidate) -> ChosenModel | _Candidate | None:
        """Choose the model's name and check that the model answers.

        Returns another candidate if the person names one after a failed check; None if they are
        to be asked for one.
        """
        settings, present = candidate.settings, candidate.was_configured
        if not candidate.is_readable:
            self._prompter.say("  The section [model] is kept, and was not checked.")
            return ChosenModel(settings, was_configured=True)
        if settings.base_url and is_own_address(settings.base_url, self._http):
            words = f"{settings.base_url} is the address of this gateway, which would ask itself."
            self._prompter.reject(SetupQuestion(key="model", prompt=""), AnswerError(words))
            return None
        if settings.provider == "demo":
            self._prompter.say("  The built-in demo answers until you configure a model.")
            return ChosenModel(settings)
        while True:
            failed, probed = None, None
            if settings.name is None:
                probed = self._checks.probe_model(settings, answers=False)
                failed = _first_failure(probed)
                if failed is None:
                    settings = replace(settings, name=self._choose_name(settings, probed))
            if failed is None:
                probed = self._checks.probe_model(settings, answers=True)
                failed = _first_failure(probed)
            if failed is None:
                self._show_findings(probed)
                return ChosenModel(settings, checked=probed is not None, was_configured=present)
            if failed.subject != ProbeSubject.KEY:
                return self._confirm_unchecked(settings, failed, was_configured=present)
            key = self._ask_other_key(failed)
            if key is None:
                return None
            settings, present = replace(settings, api_key=Secret(key)), False

    def _choose_name(self, settings: TargetSettings, probed: ProbedModel | None) -> str | None:
        """Choose one of the models the service offers."""
        default_model = SERVICES[settings.provider].model
        if settings.base_url is None:
            return default_model
        offered = probed.offered if probed else ()
        if len(offered) == 1:
            self._unasked_names.add(offered[0])
            return offered[0]
        if not offered:
            missing = "The server does not list its models: use --model NAME."
            question = SetupQuestion(
                key="name", prompt="Name of the model", missing_message=missing
            )
            while not (name := self._prompter.ask(question).strip()):
                self._prompter.reject(question, AnswerError("The name of the model is needed."))
            return name
        best = preferred_model(offered)
        shown = [best, *(name for name in offered if name != best)][:_MAX_SHOWN]
        self._prompter.say(f"  The server has {len(offered)} models:")
        missing = f"The server has several models, use --model NAME: {_abbreviate(offered)}."
        more = " or its name" if len(offered) > len(shown) else ""
        question = SetupQuestion(
            key="name",
            prompt=f"Number{more}",
            default=best,
            shown_default="1",
            missing_message=missing,
            must_be_given=True,
        )
        return choose(self._prompter, question, shown, unlisted=offered)

    def _ask_other_key(self, failed: Finding) -> str | None:
        """Ask for a working key; return None to choose another service."""
        question = SetupQuestion(
            key="key", prompt="Another key (Enter: another service)", default="", is_secret=True
        )
        self._prompter.reject(question, ConfigError(f"{failed.text}."))
        while True:
            answer = "".join(self._prompter.ask(question).split())
            is_key = looks_like_key(answer) and assume_scheme(answer) is None
            if is_key or not answer:
                return answer or None
            self._prompter.reject(question, AnswerError("This is not a key."))

    def _confirm_unchecked(
        self, settings: TargetSettings, failed: Finding, *, was_configured: bool
    ) -> ChosenModel | _Candidate | None:
        """Ask whether to keep a model whose check failed for a reason other than the key.

        The answer may also be another address. A key is not offered: this answer is shown.
        """
        unreached = failed.subject == ProbeSubject.SERVICE
        who = "" if settings.base_url else f"{settings.provider}: "
        question = SetupQuestion(
            key="unchecked",
            prompt=f"{'Continue without the check' if unreached else 'Use it anyway'}, "
            "or enter another address",
            default="yes" if unreached else "no",
            shown_default="Y/n" if unreached else "y/N",
            hint=NO_CHECK_HINT,
        )
        self._prompter.reject(question, CannotStart(f"{who}{failed.text}. {failed.fix}"))
        while True:
            answer = self._prompter.ask(question)
            kept = parse_yes_no(answer)
            if kept is not None:
                return ChosenModel(settings, was_configured=was_configured) if kept else None
            address = self._complete_address("".join(answer.split()))
            if is_url(address):
                return _server_candidate(address)
            words = "Please answer yes or no, or enter another address."
            self._prompter.reject(question, AnswerError(words))

    def _show_findings(self, probed: ProbedModel | None) -> None:
        if probed is None:
            return
        self._prompter.say(f"  ✓ {probed.label} answers.")
        for finding in probed.findings:
            if finding.level != "ok":
                self._prompter.warn(f"{finding.text}. {finding.fix}")

    # --- saving ---------------------------------------------------------------------------------

    def _save(self, chosen: ChosenModel) -> None:
        settings, draft = chosen.settings, self._draft
        if chosen.was_configured and settings.name in self._unasked_names:
            return
        if settings.provider == "demo" and draft.get(("model",)) is None:
            return  # leave the choice to the environment, as without a configuration
        if draft.get(("model", "name")) != settings.name:
            for key in ("price", "context_window"):  # values of another model
                draft.remove(("model", key))
        if chosen.was_configured:
            self._put("name", settings.name)
            return
        draft.put(("model", "provider"), settings.provider)
        self._put("name", settings.name if settings.provider != "demo" else None)
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


def _build_candidate(service: KnownService, key: str) -> _Candidate:
    settings = TargetSettings(
        provider=service.provider,
        base_url=service.base_url or None,
        api_key=Secret(key) if key else None,
    )
    return _Candidate(service.name, settings)


def _http_settings(draft: ConfigDraft) -> HttpSettings:
    """Return host and port of the gateway as far as the file has valid ones, else the defaults."""
    try:
        found = {key: draft.get(("http", key)) for key in ("host", "port")}
        given = {key: value for key, value in found.items() if value is not None}
        return convert(given, HttpSettings)
    except ValidationError:
        return HttpSettings()


def has_model(draft: ConfigDraft) -> bool:
    """Return True if the file configures a model service."""
    model = draft.get(("model",))
    if not isinstance(model, dict) or model.get("provider") == "demo":
        return False
    return bool({"provider", "name", "base_url", "api_key"} & set(model))


def _unreadable_candidate() -> _Candidate:
    label = "as it is: the section [model] of the file, which has a problem"
    return _Candidate(label, TargetSettings(), was_configured=True, is_readable=False)


def _server_candidate(url: str) -> _Candidate:
    return _build_candidate(KnownService("the server", "openai", complete_url(url)), "")


def _demo_candidate() -> _Candidate:
    return _Candidate("demo", TargetSettings(provider="demo"))


def _first_failure(probed: ProbedModel | None) -> Finding | None:
    """Return the first failed finding, except a missing name that is still to be chosen."""
    found = probed.findings if probed else ()
    unnamed = probed is not None and probed.name is None
    failed = (finding for finding in found if finding.level == "fail")
    return next(
        (finding for finding in failed if not (unnamed and finding.subject == ProbeSubject.MODEL)),
        None,
    )


def _is_same_service(one: TargetSettings, other: TargetSettings | None) -> bool:
    """Return True if both are the same service with the same key."""
    parts = ("provider", "base_url", "api_key")
    return other is not None and all(getattr(one, part) == getattr(other, part) for part in parts)


def _model_label(settings: TargetSettings) -> str:
    return f"{settings.provider}/{settings.name or 'its first model'}"


def _abbreviate(names: Sequence[str]) -> str:
    left = len(names) - _MAX_SHOWN
    return ", ".join(names[:_MAX_SHOWN]) + (f" and {left} more" if left > 0 else "")
