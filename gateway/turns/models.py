"""Which models answer where: the configured ones, those of a `[[route]]`, or what people chose."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from agent.errors import ProviderError, ToolError
from agent.model.contract import Provider
from agent.model.learned import LearnedTargets
from agent.providers.registry import (
    ModelNotChosen,
    SupportsListModels,
    Target,
    UnknownProvider,
    build_provider,
    choose_model,
)
from agent.request.prompt import SYSTEM_PROMPT
from agent.settings import REASONING_EFFORTS, PriceSettings, TargetSettings
from agent.tools.contract import Tool
from agent.tools.drafts import DraftStore
from agent.tools.registry import BUILT_IN, ToolRegistry, filter_enabled, load_entry_points
from agent.turn import TurnLimits
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

_LIST_TIMEOUT_SECONDS = 5.0

PriceLookup = Callable[[TargetSettings, str], PriceSettings | None]


class PreparedSettings(Struct, frozen=True):
    """Settings that can be used, with the system prompt that they name."""

    settings: Settings
    system: str


@functools.lru_cache(maxsize=1024)
def _folder_of(home: Path, category: str, name: str) -> Path:
    """The folder of a conversation or person.

    Each path that is put together leaves its parts in the interpreter's table of names, which
    never shrinks: after some ten thousand turns that would be megabytes.
    """
    return home / category / quote(name, safe="")


class Models:
    """The settings of every conversation's turns."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        targets: Sequence[Target],
        *,
        clock: Clock,
        tools: Iterable[Tool] = (),
        choice_for: Callable[[str], ModelChoice] = lambda _: ModelChoice(),
        extra_tools: Callable[[], Sequence[Tool]] = lambda: (),
        price_lookup: PriceLookup | None = None,
    ) -> None:
        self.targets = tuple(targets)  # the configured one, then who takes over
        self.experience = LearnedTargets()
        self.choice_for = choice_for  # what people chose for a conversation
        self.extra_tools = extra_tools  # those that come and go
        self.tools_enabled = True  # not in safe mode
        self._price_lookup = (
            price_lookup  # looks up what no configuration says; None: nobody needs it
        )
        self._settings = settings
        self._home = home
        self._clock = clock
        self._system = _system_prompt(settings)
        self._tools = (*BUILT_IN, *load_entry_points(), *tools)
        self._retired: list[tuple[int, Provider]] = []  # since when nothing new begins with them

    @property
    def tool_names(self) -> frozenset[str]:
        """All that are always there, whether they are enabled or not."""
        return frozenset(tool.name for tool in self._tools)

    def turn_setting(self, key: str, person: str, encoded_options: bytes = b"") -> TurnSetting:
        """What a turn of this conversation runs with; `written` are wishes, see `gateway.inbound.request_options`."""
        route = self._route(key)
        wishes = decode_options(encoded_options) if encoded_options else RequestOptions()
        system = (route and route.system_prompt) or self._system
        agent = self._settings.agent
        limits = TurnLimits(max_steps=agent.max_steps, tool_timeout=agent.tool_timeout)
        if wishes.max_output_tokens:
            limits = replace(limits, stop_at_output_limit=True)
        return TurnSetting(
            targets=self._with_prices(_with_options(self._targets(key, route), wishes)),
            tools=self._tool_registry(route),
            system="\n\n".join(filter(None, (system, wishes.system))),
            workspace=self._workspace(person),
            drafts=DraftStore(_folder_of(self._home, "drafts", key), self._clock),
            limits=limits,
            experience=self.experience,
            show_reasoning=agent.show_reasoning,
        )

    # --- which models there are -----------------------------------------------------------------

    def targets_of(self, key: str) -> tuple[Target, ...]:
        """Who answers in a conversation, and who takes over."""
        return self._targets(key, self._route(key))

    def has_chosen_model(self, key: str) -> bool:
        """Whether the model of a conversation is one that people chose."""
        return self._chosen_targets(self.choice_for(key)) is not None

    def configured_names(self) -> tuple[str, ...]:
        """Names that the configuration holds, as people write them; the model's own comes first."""
        names: list[str] = []
        for target in self.targets:
            names.append(target.label if target.model in names else target.model)
        routes = (route.model for route in self._settings.route if route.model)
        return tuple(dict.fromkeys((*names, *routes)))

    def provider_of(self, name: str) -> str:
        """Who is asked when the model of this name is chosen."""
        return _put_first(name, self.targets)[0].provider.name

    async def list_offered(
        self, timeout_seconds: float = _LIST_TIMEOUT_SECONDS
    ) -> tuple[str, ...] | None:
        """Which models the configured service lists; None when it does not say so in time."""
        provider = self.targets[0].provider
        if not isinstance(provider, SupportsListModels):
            return None
        try:
            async with asyncio.timeout(timeout_seconds):
                return await provider.list_models() or None
        except (ProviderError, TimeoutError) as error:
            log.info("%s does not list its models: %s", provider.name, str(error) or "too slow")
            return None

    def _route(self, key: str) -> RouteSettings | None:
        return find_route(self._settings.route, parse_key(key)) if self._settings.route else None

    def _chosen_targets(self, choice: ModelChoice) -> list[Target] | None:
        """The targets as people want them; None when that model cannot be reached any more."""
        if choice.model is None:
            return None
        targets = _put_first(choice.model, self.targets, choice.provider)
        is_there = choice.provider in {"", targets[0].provider.name}
        return targets if is_there else None

    def _targets(self, key: str, route: RouteSettings | None) -> tuple[Target, ...]:
        chosen = self.choice_for(key)
        targets = self._chosen_targets(chosen)
        if targets is None:
            named = route and route.model
            targets = _put_first(named, self.targets) if named else list(self.targets)
        if effort := REASONING_EFFORTS.get(chosen.effort or ""):
            settings = replace(targets[0].settings, reasoning_effort=effort)
            targets[0] = replace(targets[0], settings=settings)
        return tuple(targets)

    def _with_prices(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """Where money is limited every price must be known, as far as anybody knows it."""
        if self._price_lookup is None:
            return targets
        return tuple(
            replace(
                each,
                settings=replace(
                    each.settings, price=self._price_lookup(each.settings, each.model)
                ),
            )
            for each in targets
        )

    def _tool_registry(self, route: RouteSettings | None) -> ToolRegistry:
        if not self.tools_enabled or (route and route.tools == ()):
            return ToolRegistry(())
        families = self._settings.tools.enabled if not route or route.tools is None else route.tools
        return ToolRegistry((*filter_enabled(self._tools, families), *self.extra_tools()))

    def _workspace(self, person: str) -> Path:
        configured = self._settings.agent.workspace
        if configured:
            return Path(configured).expanduser()
        return _folder_of(self._home, "workspace", person or "nobody")

    def workspaces(self) -> list[Path]:
        """All that there are; looks at the disk."""
        of_persons = self._home / "workspace"
        found = sorted(of_persons.iterdir()) if of_persons.is_dir() else []
        configured = self._settings.agent.workspace
        return [Path(configured).expanduser(), *found] if configured else found

    async def sweep_drafts(self) -> None:
        """Forget drafts that nobody finished within a day."""
        folder = self._home / "drafts"
        for each in sorted(folder.iterdir()) if folder.is_dir() else ():
            try:
                await DraftStore(each, self._clock).remove_expired()
            except ToolError as error:  # what stands in the way there is nobody else's trouble
                log.warning("%s: %s", each, error)

    # --- another configuration --------------------------------------------------------------------

    def prepare(self, settings: Settings) -> "PreparedSettings":
        """Read what turns need of other settings; raises `ConfigError`, and changes nothing."""
        return PreparedSettings(settings, _system_prompt(settings))

    def apply(self, prepared: "PreparedSettings", targets: Sequence[Target] | None) -> None:
        """Use other settings, and other models if there are, for turns that begin from now on."""
        self._settings, self._system = prepared.settings, prepared.system
        self._price_lookup = _price_lookup(prepared.settings)
        if targets is not None:
            now = self._clock.now()
            self._retired += [(now, target.provider) for target in self.targets]
            self.targets = tuple(targets)

    async def close_retired(self, oldest_turn_start: int) -> None:
        """Let go of models that no turn uses any more; the oldest that runs began at this moment."""
        done = [provider for since, provider in self._retired if since < oldest_turn_start]
        self._retired = [each for each in self._retired if each[0] >= oldest_turn_start]
        for provider in done:
            await provider.aclose()

    async def aclose(self) -> None:
        """Let go of all connections."""
        retired = [provider for _, provider in self._retired]
        for provider in (*retired, *(target.provider for target in self.targets)):
            await provider.aclose()


def _put_first(name: str, targets: Sequence[Target], provider: str = "") -> list[Target]:
    """Put the model of this name first; one that is nobody's own is reached like the first.

    What was configured about the first one's price and size does not hold for another model.
    """
    for own in targets:
        if name in {own.model, own.label} and provider in {"", own.provider.name}:
            return [own, *(each for each in targets if each is not own)]
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


async def open_models(
    settings: Settings, home: Path, tools: Iterable[Tool] = (), *, clock: Clock
) -> Models:
    """Build the providers and find the model's name; says plainly what is missing."""
    targets = await open_targets(settings)
    return Models(
        settings, home, targets, clock=clock, tools=tools, price_lookup=_price_lookup(settings)
    )


def _price_lookup(settings: Settings) -> PriceLookup | None:
    return prices.find_price if settings.limits.dollar_limit_key else None


async def open_targets(settings: Settings) -> list[Target]:
    """Build the providers and find the models' names; whoever takes them closes them."""
    targets: list[Target] = []
    async with contextlib.AsyncExitStack() as opened:
        for each in (settings.model, *settings.model.fallback):
            target = await _open_target(each)
            opened.push_async_callback(target.provider.aclose)
            targets.append(target)
        limit = settings.limits.dollar_limit_key
        for target in targets if limit else ():
            if prices.find_price(target.settings, target.model) is None:  # named by its server
                why = prices.unpriced_message(target.model, limit)
                msg = f"{why[:1].upper()}{why[1:]}."
                raise ConfigError(msg)
        opened.pop_all()  # all are there
    return targets


async def _open_target(settings: TargetSettings) -> Target:
    try:
        provider: Provider = build_provider(settings)
    except UnknownProvider as error:
        raise ConfigError(str(error)) from error
    try:
        return Target(provider, await choose_model(provider, settings), settings)
    except ModelNotChosen as error:
        await provider.aclose()
        raise ConfigError(str(error)) from error
    except ProviderError as error:
        await provider.aclose()
        msg = f"Cannot ask the model service which models it has: {error} Set model.name."
        raise CannotStart(msg) from error


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
