"""Which model answers where: the configured one, or another one by `[[route]]`."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import msgspec

from agent.errors import ProviderError
from agent.loop import TurnLimits
from agent.prompt import SYSTEM
from agent.providers.registry import (
    ModelNotChosen,
    Target,
    UnknownProvider,
    build,
    choose_model,
)
from agent.tools.contract import Tool
from agent.tools.registry import BUILT_IN, ToolRegistry, from_entry_points
from gateway.errors import CannotStart, ConfigError
from gateway.routing import route_of
from gateway.settings import Settings
from gateway.turns import Setting
from sessions.key import parse_key


class Models:
    """The settings of every conversation's turns."""

    def __init__(
        self, settings: Settings, home: Path, target: Target, tools: Iterable[Tool] = ()
    ) -> None:
        self._settings = settings
        self._home = home
        self._target = target
        self._system = _system_prompt(settings)
        self._tools = ToolRegistry((*BUILT_IN, *from_entry_points(), *tools))
        self._limits = TurnLimits(
            max_steps=settings.agent.max_steps, tool_timeout=settings.agent.tool_timeout
        )

    def setting(self, key: str, person: str) -> Setting:
        """What a turn of this conversation runs with."""
        route = route_of(self._settings.route, parse_key(key)) if self._settings.route else None
        target, system, tools = self._target, self._system, self._tools
        if route and route.model:
            target = msgspec.structs.replace(target, model=route.model)
        if route and route.system_prompt:
            system = route.system_prompt
        if route and route.tools == ():
            tools = ToolRegistry(())
        return Setting(target, tools, system, self._workspace(person), self._limits)

    def _workspace(self, person: str) -> Path:
        configured = self._settings.agent.workspace
        if configured:
            return Path(configured).expanduser()
        return self._home / "workspace" / quote(person or "nobody", safe="")

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self._target.provider.aclose()


async def open_models(settings: Settings, home: Path, tools: Iterable[Tool] = ()) -> Models:
    """Build the provider and find the model's name; says plainly what is missing."""
    try:
        provider = build(settings.model)
    except UnknownProvider as error:
        raise ConfigError(str(error)) from error
    try:
        name = await choose_model(provider, settings.model)
    except ModelNotChosen as error:
        await provider.aclose()
        raise ConfigError(str(error)) from error
    except ProviderError as error:
        await provider.aclose()
        msg = f"Cannot ask the model service which models it has: {error} Set model.name."
        raise CannotStart(msg) from error
    return Models(settings, home, Target(provider, name, settings.model), tools)


def _system_prompt(settings: Settings) -> str:
    agent = settings.agent
    if agent.system_prompt_file:
        path = Path(agent.system_prompt_file).expanduser()
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            msg = f"agent.system_prompt_file: cannot read {path}: {error.strerror}"
            raise ConfigError(msg) from error
    return agent.system_prompt or SYSTEM
