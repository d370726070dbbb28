"""Settings of turns: the configured models, those of a `[[route]]`, or the choice of a chat."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agent.errors import (
    ApiKeyRejected,
    ConnectionLost,
    Overloaded,
    ProviderError,
    Stalled,
    ToolError,
)
from agent.model.contract import Provider
from agent.model.learned import LearnedTargets
from agent.providers.registry import (
    ModelNotChosen,
    SupportsListModels,
    Target,
    UnknownProvider,
    build_provider,
    choose_model,
    known_model,
)
from agent.request.prompt import SYSTEM_PROMPT
from agent.settings import REASONING_EFFORTS, PriceSettings, TargetSettings
from agent.tools.contract import Tool
from agent.tools.drafts import DraftStore
from agent.tools.registry import ToolRegistry, filter_enabled
from agent.turn import TurnLimits
from gateway.access.api_keys import Requester
from gateway.errors import CannotStart, ConfigError
from gateway.inbound.request_options import RequestOptions, decode_options
from gateway.inbound.routing import find_route
from gateway.settings import RouteSettings, Settings
from gateway.spending import prices
from gateway.turns.choices import ModelChoice
from gateway.turns.setting import TurnSetting
from sessions.key import parse_key
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 5.0
_LIST_TIMEOUT_SECONDS = 5.0
_START_LIST_SECONDS = 20.0
"""Longest wait for the list of models at a start or reload, when no model is configured."""

PriceLookup = Callable[[TargetSettings, str], PriceSettings | None]


class PreparedSettings(Struct, frozen=True):
    """Checked settings, with their system prompt already read."""

    settings: Settings
    system: str


@functools.lru_cache(maxsize=1024)
def _folder_of(home: Path, category: str, name: str) -> Path:
    """Return the folder of a conversation or person.

    Cached, because `pathlib` interns the parts of every path and the table of interned strings
    never shrinks: without a cache it would grow by megabytes over ten thousand turns.
    """
    return home / category / quote(name, safe="")


def _no_names() -> Mapping[str, str]:
    return {}


def _no_tools(_person: str) -> tuple[Tool, ...]:
    return ()


def _no_reserved_names(_person: str) -> frozenset[str]:
    return frozenset()


def _no_text(_person: str) -> str:
    return ""


class ExternalTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of servers, which come and go; see `agent.tools.mcp.servers.McpServers`."""

    tools: Callable[[str], Sequence[Tool]] = _no_tools  # of the present servers, for a person
    reserved_names: Callable[[str], Collection[str]] = (
        _no_reserved_names  # that the person cannot call
    )
    earlier_names: Callable[[], Mapping[str, str]] = _no_names
    instructions: Callable[[str], str] = _no_text  # for a person


class Models:
    """Builds the setting of each turn, and owns the providers."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        targets: Sequence[Target],
        *,
        clock: Clock,
        tools: Sequence[Tool] = (),
        external: ExternalTools | None = None,
        choice_for: Callable[[str], ModelChoice] = lambda _: ModelChoice(),
    ) -> None:
        self.targets = tuple(targets)  # the configured model, then its fallbacks
        self.experience = LearnedTargets()
        self._choice_for = choice_for  # by conversation key
        self._tools = tools  # enabled or not
        self._tool_names = tuple(tool.name for tool in tools)
        self._external = external or ExternalTools()
        self._price_lookup = _price_lookup(settings)  # None unless spending is limited in dollars
        self._settings = settings
        self._home = home
        self._clock = clock
        self._system = _system_prompt(settings)
        self._retired: list[tuple[int, Provider]] = []  # with the time of the reload

    def turn_setting(self, key: str, person: str, encoded_options: bytes = b"") -> TurnSetting:
        """Build the setting of a turn; see `gateway.inbound.request_options` for the options."""
        route = self._route(key)
        options = decode_options(encoded_options) if encoded_options else RequestOptions()
        system = "" if options.plain else (route and route.system_prompt) or self._system
        agent = self._settings.agent
        limits = TurnLimits(
            max_steps=agent.max_steps,
            tool_timeout=agent.tool_timeout,
            max_answer_characters=agent.max_answer_characters,
        )
        if options.max_output_tokens:
            limits = replace(limits, stop_at_output_limit=True)
        route_has_tools = not (route and route.tools == ())
        has_tools = options.allows_tools and not options.plain and route_has_tools
        hints = self._external.instructions(person) if has_tools else ""
        return TurnSetting(
            targets=self._with_prices(
                _with_options(self._targets(key, route), options), options.requester
            ),
            tools=self._tool_registry(route, person) if has_tools else ToolRegistry(()),
            system="\n\n".join(filter(None, (system, options.system, hints))),
            workspace=self._workspace(person),
            drafts=DraftStore(_folder_of(self._home, "drafts", key), self._clock, person),
            limits=limits,
            experience=self.experience,
            show_reasoning=agent.show_reasoning,
            options=options.answer,
            requester=options.requester,
            sent_requests=options.turn_attempts,
        )

    def shows_reasoning(self) -> bool:
        """Return True if people may see the model's reasoning (`agent.show_reasoning`)."""
        return self._settings.agent.show_reasoning

    # --- models ---------------------------------------------------------------------------------

    def targets_of(self, key: str) -> tuple[Target, ...]:
        """Return the model of a conversation and its fallbacks, in order."""
        return self._targets(key, self._route(key))

    def has_chosen_model(self, key: str) -> bool:
        """Return True if people chose the model of a conversation and it is still available."""
        return self._chosen_targets(self._choice_for(key)) is not None

    def configured_names(self) -> tuple[str, ...]:
        """Return the model names in the configuration, as people type them, the default first."""
        names: list[str] = []
        for target in self.targets:
            names.append(target.label if target.model in names else target.model)
        routes = (route.model for route in self._settings.route if route.model)
        return tuple(dict.fromkeys((*names, *routes)))

    def labels(self) -> frozenset[str]:
        """Return the labels of the configured models."""
        return frozenset(target.label for target in self.targets)

    def lists_offered(self) -> bool:
        """Return True if API clients see all models of the configured service (`model.list`)."""
        return self._settings.model.list

    def provider_of(self, name: str) -> str:
        """Return the name of the provider that serves a model."""
        return _put_first(name, self.targets)[0].provider.name

    async def list_offered(
        self, timeout_seconds: float = _LIST_TIMEOUT_SECONDS
    ) -> tuple[str, ...] | None:
        """Return the models that the configured service lists, or None if it does not answer in time."""
        provider = self.targets[0].provider
        if not isinstance(provider, SupportsListModels):
            return None
        try:
            async with asyncio.timeout(timeout_seconds):
                return await provider.list_models() or None
        except (ProviderError, TimeoutError) as error:
            log.info("%s: no list of models: %s", provider.name, str(error) or "timeout")
            return None

    def _route(self, key: str) -> RouteSettings | None:
        return find_route(self._settings.route, parse_key(key)) if self._settings.route else None

    def _chosen_targets(self, choice: ModelChoice) -> list[Target] | None:
        """Return the targets with the chosen model first; None without a choice that is available."""
        if choice.model is None:
            return None
        targets = _put_first(choice.model, self.targets, choice.provider)
        is_there = choice.provider in {"", targets[0].provider.name}
        return targets if is_there else None

    def _targets(self, key: str, route: RouteSettings | None) -> tuple[Target, ...]:
        chosen = self._choice_for(key)
        targets = self._chosen_targets(chosen)
        if targets is None:
            named = route and route.model
            targets = _put_first(named, self.targets) if named else list(self.targets)
        if effort := REASONING_EFFORTS.get(chosen.effort or ""):
            settings = replace(targets[0].settings, reasoning_effort=effort)
            targets[0] = replace(targets[0], settings=settings)
        return tuple(targets)

    def _with_prices(
        self, targets: tuple[Target, ...], requester: Requester | None
    ) -> tuple[Target, ...]:
        """Add known prices, because a spending limit in dollars needs them."""
        lookup = self._price_lookup
        if lookup is None and requester and requester.limits.usd_per_day is not None:
            lookup = prices.find_price
        if lookup is None:
            return targets
        return tuple(
            replace(
                target,
                settings=replace(target.settings, price=lookup(target.settings, target.model)),
            )
            for target in targets
        )

    def _tool_registry(self, route: RouteSettings | None, person: str) -> ToolRegistry:
        families = self._settings.tools.enabled if not route or route.tools is None else route.tools
        external = self._external
        return ToolRegistry(
            (*filter_enabled(self._tools, families), *external.tools(person)),
            (*self._tool_names, *external.reserved_names(person)),
            external.earlier_names(),
        )

    def _workspace(self, person: str) -> Path:
        configured = self._settings.agent.workspace
        if configured:
            return Path(configured).expanduser()
        return _folder_of(self._home, "workspace", person or "nobody")

    def workspaces(self) -> list[Path]:
        """Return all existing workspace folders; reads the disk."""
        parent = self._home / "workspace"
        folders = sorted(parent.iterdir()) if parent.is_dir() else []
        configured = self._settings.agent.workspace
        return [Path(configured).expanduser(), *folders] if configured else folders

    async def sweep_drafts(self) -> None:
        """Delete expired drafts; a folder that fails is logged and skipped."""
        parent = self._home / "drafts"
        for folder in sorted(parent.iterdir()) if parent.is_dir() else ():
            try:
                await DraftStore(folder, self._clock).remove_expired()
            except ToolError as error:
                log.warning("%s: %s", folder, error)

    # --- reload of the configuration --------------------------------------------------------------

    def prepare(self, settings: Settings) -> "PreparedSettings":
        """Check new settings without applying them; raises `ConfigError`."""
        return PreparedSettings(settings, _system_prompt(settings))

    def apply(self, prepared: "PreparedSettings", targets: Sequence[Target] | None) -> None:
        """Use new settings for turns that start from now on; `targets` is None if unchanged."""
        self._settings, self._system = prepared.settings, prepared.system
        self._price_lookup = _price_lookup(prepared.settings)
        if targets is not None:
            now = self._clock.now()
            self._retired += [(now, target.provider) for target in self.targets]
            self.targets = tuple(targets)

    async def close_retired(self, oldest_turn_start: int) -> None:
        """Close replaced providers that no turn uses, given the start of the oldest running turn."""
        unused = [provider for since, provider in self._retired if since < oldest_turn_start]
        self._retired = [entry for entry in self._retired if entry[0] >= oldest_turn_start]
        await _close_providers(unused)

    async def aclose(self) -> None:
        """Close all providers."""
        retired = [provider for _, provider in self._retired]
        await _close_providers((*retired, *(target.provider for target in self.targets)))


async def _close_providers(providers: Iterable[Provider]) -> None:
    """Close providers; one that does not finish in time is left to the end of the process."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS), asyncio.TaskGroup() as tasks:
            for provider in providers:
                tasks.create_task(provider.aclose())
    except TimeoutError:
        log.warning("a model service was not disconnected within %g s", _CLOSE_SECONDS)


def _put_first(name: str, targets: Sequence[Target], provider: str = "") -> list[Target]:
    """Move the named model to the front; an unconfigured name replaces the first target's model.

    The price and context window configured for the first target do not apply to another model.
    """
    for target in targets:
        if name in {target.model, target.label} and provider in {"", target.provider.name}:
            return [target, *(other for other in targets if other is not target)]
    first, *others = targets
    settings = replace(first.settings, name=name, price=None, context_window=None)
    return [replace(first, model=name, settings=settings), *others]


def _with_options(targets: tuple[Target, ...], options: RequestOptions) -> tuple[Target, ...]:
    if options.model:
        targets = tuple(_put_first(options.model, targets))
    return tuple(_target_with(target, options) for target in targets)


def _target_with(target: Target, options: RequestOptions) -> Target:
    settings = _settings_with(target.settings, options)
    return target if settings is target.settings else replace(target, settings=settings)


def _settings_with(settings: TargetSettings, options: RequestOptions) -> TargetSettings:
    if options.max_output_tokens is not None:
        settings = replace(settings, max_output_tokens=options.max_output_tokens)
    if options.temperature is not None:
        settings = replace(settings, temperature=options.temperature)
    if effort := REASONING_EFFORTS.get(options.effort or ""):
        settings = replace(settings, reasoning_effort=effort)
    return settings


def _price_lookup(settings: Settings) -> PriceLookup | None:
    return prices.find_price if settings.limits.dollar_limit_key else None


async def open_targets(
    settings: Settings, *, list_seconds: float = _START_LIST_SECONDS
) -> list[Target]:
    """Build the providers and resolve their model names; the caller closes the providers.

    A service that does not list its models within `list_seconds` counts as unreachable. Raises `ConfigError` or `CannotStart`; then all providers built so far are closed.
    """
    targets: list[Target] = []
    async with contextlib.AsyncExitStack() as opened:
        for configured in (settings.model, *settings.model.fallback):
            target = await _open_target(configured, list_seconds)
            opened.push_async_callback(target.provider.aclose)
            targets.append(target)
        limit = settings.limits.dollar_limit_key
        for target in targets if limit else ():
            # The check of the configuration cannot see a model name that the server chose.
            if prices.find_price(target.settings, target.model) is None:
                why = prices.unpriced_message(target.model, limit)
                msg = f"{why[:1].upper()}{why[1:]}."
                raise ConfigError(msg)
        opened.pop_all()  # the caller owns them now
    return targets


async def _open_target(settings: TargetSettings, list_seconds: float) -> Target:
    try:
        provider: Provider = build_provider(settings)
    except UnknownProvider as error:
        raise ConfigError(str(error)) from error
    address = settings.base_url or provider.name
    if known_model(settings) is None:
        log.info(
            "model.name is not set: asking %s for its models, for up to %g s", address, list_seconds
        )
    try:
        async with asyncio.timeout(list_seconds):
            chosen = await choose_model(provider, settings)
    except TimeoutError as error:
        await provider.aclose()
        msg = (
            f"{address} did not list its models within {list_seconds:g} s. Check that the model "
            "service works; with model.name set, Holdfast starts without the list."
        )
        raise CannotStart(msg) from error
    except ModelNotChosen as error:
        await provider.aclose()
        raise ConfigError(str(error)) from error
    except ProviderError as error:
        await provider.aclose()
        msg = (
            f"Holdfast cannot list the models of the model service: {str(error).rstrip('.')}. "
            f"{_list_advice(error, settings)}"
        )
        raise CannotStart(msg) from error
    if chosen.listed > 1:
        log.warning(
            "model.name is not set: using %s, the first of %d models that %s lists. "
            "To choose another: holdfast run --set model.name=NAME",
            chosen.name,
            chosen.listed,
            address,
        )
    return Target(provider, chosen.name, settings)


def _list_advice(error: ProviderError, settings: TargetSettings) -> str:
    """Return the sentence that says what to do when a service does not list its models."""
    match error:
        case ApiKeyRejected():
            return "Set a valid key in model.api_key."
        case Overloaded() | ConnectionLost() | Stalled() if settings.base_url:
            return "Start that service, or correct its address in model.base_url."
        case _:
            return "Try again later; with model.name set, Holdfast starts without the list."


def _system_prompt(settings: Settings) -> str:
    agent = settings.agent
    if agent.system_prompt_file:
        path = Path(agent.system_prompt_file).expanduser()
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            msg = f"agent.system_prompt_file: cannot read {path}: {error.strerror}"
            raise ConfigError(msg) from error
    return agent.system_prompt or SYSTEM_PROMPT
