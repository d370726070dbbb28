"""The only reader of configuration files and of the environment.

`load` merges the layers (default, environment, file, `--set`), decodes the result, and fails with
all problems at once, one line each.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agent.providers.registry import available_providers
from agent.settings import SERVICES, ModelSettings, TargetSettings
from gateway.access.entries import parse_entry
from gateway.config import credentials
from gateway.config.decode import ConfigDecoder, Problem
from gateway.config.layers import ConfigTree, UnquotedValue, ValueOrigin, format_path, parse_setting
from gateway.config.model_defaults import fill_model_defaults
from gateway.config.toml_lines import locate_keys
from gateway.config.unsupported import SUPPORTED_TOOL_FAMILIES, is_unsupported
from gateway.config.values import ConfigValues, is_readable_by_others, read_text
from gateway.errors import ConfigError
from gateway.settings import KeyPath, Settings
from gateway.spending.prices import check_prices
from platforms.core.contract import PlatformSpec
from sessions.key import parse_key
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from sessions.values.size import Size
from sessions.values.spelling import did_you_mean

HANDOVER_VARIABLE = "HOLDFAST_HANDOVER"
"""`PID lock=5 port=7`; a process with another pid ignores the variable."""

SERVICE_HOME = Path("/var/lib/holdfast")
"""State folder of the system service, as in its unit file."""

_RESERVED_VARIABLES = frozenset({"HOLDFAST_CONFIG", "HOLDFAST_HOME", HANDOVER_VARIABLE})
_MAX_SHOWN_LENGTH = 5  # of a --set value repeated in errors; secrets are longer
_SECRET_KEY = re.compile(r"key|token|secret|password|url|env|headers", re.IGNORECASE)
# Variables that Kubernetes sets in containers for a service named "holdfast".
_KUBERNETES_VARIABLE = re.compile(r"HOLDFAST_(SERVICE_|PORT(_|$))")

PlatformSpecs = Mapping[str, PlatformSpec]


class ConfigOptions(Struct, frozen=True):
    """Command line options about the configuration."""

    config: Path | None = None
    overrides: tuple[str, ...] = ()  # each `dotted.key=VALUE`


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """A valid configuration."""

    settings: Settings
    home: Path  # the state folder; it need not exist yet
    path: Path | None  # of the configuration file
    sources: dict[KeyPath, str]  # labels of the origins of all values except defaults
    warnings: tuple[str, ...]


class ConfigReport(Struct, frozen=True):
    """The result of `config check`."""

    path: Path | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def read_environment() -> Mapping[str, str]:
    """Return the environment of the process; all other code receives it as an argument.

    Files in the folder of credentials count as variables unless the variable is set.
    """
    folder = credentials.find_folder(os.environ)
    stored = credentials.read_variables(folder) if folder else {}
    return {**stored, **os.environ} if stored else os.environ


def child_environment() -> Mapping[str, str]:
    """Return the environment for child processes: without the secrets of credential files."""
    return os.environ


def take_handover() -> str:
    """Return the handover of the previous process and hide it from child processes."""
    return os.environ.pop(HANDOVER_VARIABLE, "")


def load(options: ConfigOptions, environ: Mapping[str, str], specs: PlatformSpecs) -> LoadedConfig:
    """Read the configuration; raises `ConfigError` with one line per problem."""
    return _Loader(options, environ, specs).load()


def check(options: ConfigOptions, environ: Mapping[str, str], specs: PlatformSpecs) -> ConfigReport:
    """Read the configuration and return its problems and warnings."""
    try:
        loaded = load(options, environ, specs)
    except ConfigError as error:
        return ConfigReport(config_file(options, environ), error.lines, ())
    return ConfigReport(loaded.path, (), loaded.warnings)


def read_platform(
    name: str,
    table: Mapping[str, object],
    file: Path,
    environ: Mapping[str, str],
    specs: PlatformSpecs,
) -> Struct:
    """Decode a platform's table as a part of this file; raises `ConfigError`."""
    return _Loader(ConfigOptions(file), environ, specs).load_platform(name, table)


def read_model(
    options: ConfigOptions, environ: Mapping[str, str], specs: PlatformSpecs
) -> ModelSettings | None:
    """Decode `[model]` alone, whatever is wrong elsewhere; None if this section has a problem."""
    return _Loader(options, environ, specs).load_model()


def state_folder(
    environ: Mapping[str, str], *, service_home: Path = SERVICE_HOME, is_root: bool | None = None
) -> Path:
    """Return the state folder.

    For root without a state folder this is the folder of the system service if that exists, because
    root usually administers the service.
    """
    if environ.get("HOLDFAST_HOME"):
        return Path(environ["HOLDFAST_HOME"]).absolute()
    if environ.get("STATE_DIRECTORY"):
        return Path(environ["STATE_DIRECTORY"].partition(":")[0])  # systemd may pass several
    own = _user_folder(environ) / ".local/share/holdfast"
    is_root = os.geteuid() == 0 if is_root is None else is_root
    return (
        service_home if is_root and not own.exists() and (service_home / "lock").exists() else own
    )


def is_service_home(environ: Mapping[str, str]) -> bool:
    """Return True if the state folder is that of the system service without having been set."""
    chosen = environ.get("HOLDFAST_HOME") or environ.get("STATE_DIRECTORY")
    return not chosen and state_folder(environ) == SERVICE_HOME


def config_file(options: ConfigOptions, environ: Mapping[str, str]) -> Path | None:
    """Return the configuration file, or None; a file given by option or variable must exist."""
    if options.config is not None:
        return options.config
    if environ.get("HOLDFAST_CONFIG"):
        return Path(environ["HOLDFAST_CONFIG"])
    usual = (
        Path("holdfast.toml"),
        _user_folder(environ) / ".config/holdfast/holdfast.toml",
        Path("/etc/holdfast/holdfast.toml"),
    )
    return next((path for path in usual if path.is_file()), None)


def _user_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


class _Loader:
    """One run of `load`, with the merged tree, problems and warnings so far."""

    def __init__(
        self, options: ConfigOptions, environ: Mapping[str, str], specs: PlatformSpecs
    ) -> None:
        self._options = options
        self._environ = environ
        self._specs = specs
        self._path = config_file(options, environ)
        self._tree = ConfigTree()
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def load(self) -> LoadedConfig:
        self._apply_environment()
        if self._path is not None:
            self._apply_file(self._path)
        for text in self._options.overrides:
            self._apply_override(text)
        self._add_problems(fill_model_defaults(self._tree, self._environ))
        settings = self._decode()
        if settings is not None:
            self._refuse_unknown_providers(settings)
            self._refuse_unsupported(settings)
            self._add_problems(
                [
                    Problem(path, f"{format_path(path)}: {text}")
                    for path, text in check_prices(settings)
                ]
            )
        if self._problems or settings is None:
            raise ConfigError(*dict.fromkeys(self._problems))
        self._warn_of_unknown_platforms(settings)
        origins = self._tree.origins().items()
        sources = {path: origin.label for path, origin in origins if origin.kind != "default"}
        home = state_folder(self._environ)
        return LoadedConfig(
            settings=settings,
            home=home,
            path=self._path,
            sources=sources,
            warnings=tuple(self._warnings),
        )

    def load_platform(self, name: str, table: Mapping[str, object]) -> Struct:
        path = ("platforms", name)
        self._apply_environment()
        self._tree.put(path, dict(table), ValueOrigin(format_path(path), "set"))
        decoder = self._decoder()
        found = decoder.decode_struct(self._specs[name].config, self._tree.get(path), path)
        self._add_problems(decoder.problems)
        if self._problems or not isinstance(found, Struct):
            raise ConfigError(*dict.fromkeys(self._problems))
        return found

    def load_model(self) -> ModelSettings | None:
        path: KeyPath = ("model",)
        self._apply_environment()
        if self._path is not None:
            self._apply_file(self._path)
        problems = fill_model_defaults(self._tree, self._environ)
        decoder = self._decoder()
        found = decoder.decode_struct(ModelSettings, self._tree.get(path, {}), path)
        is_valid = isinstance(found, ModelSettings) and not problems and not decoder.problems
        return found if is_valid else None

    # --- layers, lowest precedence first

    def _apply_environment(self) -> None:
        for name, value in sorted(self._environ.items()):
            if not value or not name.startswith("HOLDFAST_") or name in _RESERVED_VARIABLES:
                continue
            if "__" in name:
                path = tuple(name.removeprefix("HOLDFAST_").lower().split("__"))
                self._tree.put(path, UnquotedValue(value), ValueOrigin(name, "environment"))
            elif not _KUBERNETES_VARIABLE.match(name):
                hint = did_you_mean(name, {*_RESERVED_VARIABLES, *_known_variables(self._specs)})
                self._problems.append(f"{name}: unknown variable{hint}")
        for platform, spec in self._specs.items():
            for key, name in spec.secrets.items():
                path = ("platforms", platform, key)
                if self._environ.get(name) and self._tree.get(path) is None:
                    self._tree.put(path, self._environ[name], ValueOrigin(name, "environment"))

    def _apply_file(self, path: Path) -> None:
        text = ""
        try:
            text = path.read_text(encoding="utf-8-sig")
            document, lines = tomllib.loads(text), locate_keys(text)
        except OSError as error:
            problem = f"{path}: cannot be read: {error.strerror}"
        except UnicodeDecodeError:
            problem = f"{path}: is not UTF-8 text"
        except RecursionError:
            problem = f"{path}: is nested too deeply"
        except ValueError as error:
            problem = _syntax_problem(path, text, str(error))
        else:
            self._tree.put_file(document, lines, str(path))
            return
        raise ConfigError(*self._problems, problem)

    def _apply_override(self, text: str) -> None:
        key = text.partition("=")[0].strip()
        try:
            path, value = parse_setting(text)
        except ValueError as error:
            self._problems.append(f"--set {key}: {error}")
            return
        harmless = (
            len(value) <= _MAX_SHOWN_LENGTH and value.isprintable() and not _SECRET_KEY.search(key)
        )
        shown = f"={value}" if harmless else ""
        self._tree.put(path, value, ValueOrigin(f"--set {key}{shown}", "set"))

    # --- decoding

    def _decoder(self) -> ConfigDecoder:
        folder = self._path.absolute().parent if self._path else Path.cwd()
        values = ConfigValues(self._environ, folder, self._warn_of_plain_secret)
        return ConfigDecoder(
            readers={
                Secret: values.read_secret,
                Path: values.read_path,
                Duration: values.read_duration,
                Size: values.read_size,
            },
            platforms={name: spec.config for name, spec in self._specs.items()},
            hints={
                ("platforms", name, key): f"; set it, or {variable} in the environment"
                for name, spec in self._specs.items()
                for key, variable in spec.secrets.items()
            },
            section_by_key=_section_by_key(),
        )

    def _decode(self) -> Settings | None:
        decoder = self._decoder()
        settings = decoder.decode_struct(Settings, self._tree.document, ())
        self._add_problems(decoder.problems)
        if not isinstance(settings, Settings):
            return None
        prompt = settings.agent.system_prompt_file
        found, otherwise = read_text(prompt) if prompt else ("-", "")
        if not found.strip():
            path = ("agent", "system_prompt_file")
            self._add_problems([Problem(path, f"{format_path(path)} {otherwise}")])
        return settings

    def _add_problems(self, problems: list[Problem]) -> None:
        for problem in problems:
            self._problems.append(f"{self._location(problem.path)}: {problem.text}")

    def _location(self, path: KeyPath) -> str:
        origin = self._tree.origin(path)
        if origin is None or origin.kind == "default":
            return str(self._path or "configuration")
        return origin.label

    # --- warnings

    def _warn_of_plain_secret(self, value: str, path: KeyPath) -> None:
        origin = self._tree.origin(path)
        if self._path is None or origin is None or origin.kind != "file":
            return
        harmless = "://" in value and "@" not in value  # an address without a password
        if not harmless and is_readable_by_others(self._path):
            self._warnings.append(
                f"{origin.label}: {format_path(path)} is a secret in a file that others can read; "
                f"run: chmod 600 {self._path}"
            )

    def _refuse_unknown_providers(self, settings: Settings) -> None:
        """Report providers that neither Holdfast nor an installed package offers."""
        targets: list[tuple[KeyPath, TargetSettings]]
        targets = [(("model",), settings.model), *_fallbacks(settings)]
        for path, target in targets:
            if target.provider in SERVICES:
                continue  # entry points are searched only for other names
            known = (*SERVICES, *(name for name in available_providers() if name not in SERVICES))
            if target.provider not in known:
                listed = ", ".join(f'"{name}"' for name in known)
                key: KeyPath = (*path, "provider")
                text = f'{format_path(key)} must be one of {listed}, not "{target.provider}"'
                text += did_you_mean(target.provider, known)
                self._add_problems([Problem(key, text)])

    def _refuse_unsupported(self, settings: Settings) -> None:
        """Report keys that have no effect in this version, unless they have their default."""
        usual = Settings()
        for path, origin in self._tree.origins().items():
            if origin.kind == "default" or not is_unsupported(path):
                continue
            value = _value_at(settings, path)
            if value != _value_at(usual, path) and not isinstance(value, Struct):
                self._problems.append(
                    f"{origin.label}: {format_path(path)} has no effect in this version; remove it"
                )
        self._refuse_families(("tools", "enabled"), settings.tools.enabled)
        for index, route in enumerate(settings.route):
            self._refuse_families(("route", index, "tools"), route.tools or ())

    def _refuse_families(self, path: KeyPath, families: tuple[str, ...]) -> None:
        missing = ", ".join(name for name in families if name not in SUPPORTED_TOOL_FAMILIES)
        if missing:
            self._problems.append(
                f"{self._location(path)}: {format_path(path)}: not available in this version: {missing}"
            )

    def _warn_of_unknown_platforms(self, settings: Settings) -> None:
        known = {*self._specs, "console", "web"}
        for key, entries in (("allow", settings.access.allow), ("admins", settings.access.admins)):
            for index, text in enumerate(entries):
                self._warn_of_platform(("access", key, index), parse_entry(text).platform, known)
        known.add("api")
        for text in settings.limits.users:
            path = ("limits", "users", text)
            self._warn_of_platform(path, parse_entry(text).platform, known)
        for text in settings.limits.chats:
            path = ("limits", "chats", text)
            self._warn_of_platform(path, parse_key(text).platform, known)

    def _warn_of_platform(self, path: KeyPath, platform: str, known: set[str]) -> None:
        if platform not in known:
            self._warnings.append(
                f"{self._location(path)}: {format_path(path)} has no effect: no platform is "
                f"called {platform}{did_you_mean(platform, known)}"
            )


def _fallbacks(settings: Settings) -> list[tuple[KeyPath, TargetSettings]]:
    return [
        (("model", "fallback", index), each) for index, each in enumerate(settings.model.fallback)
    ]


def _value_at(settings: object, path: KeyPath) -> object:
    """Return the value at a path; None if a part of the path does not exist."""
    value: Any = settings
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, tuple):
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = getattr(value, str(part), None)
    return value


def _section_by_key() -> dict[str, str]:
    """Return the section of each key; for keys of several sections, the first."""
    sections: dict[str, str] = {}
    for section in msgspec.structs.fields(Settings):
        if isinstance(section.type, type) and issubclass(section.type, Struct):
            for key in section.type.__struct_fields__:
                sections.setdefault(key, section.name)
    return sections


def _known_variables(specs: PlatformSpecs) -> set[str]:
    """Return all valid variables of the form HOLDFAST_SECTION__KEY, for hints."""
    keys = {f"{section}__{key}" for key, section in _section_by_key().items()}
    keys |= {f"platforms__{name}__{key}" for name, spec in specs.items() for key in spec.secrets}
    return {f"HOLDFAST_{key}".upper() for key in keys}


def _syntax_problem(path: Path, text: str, message: str) -> str:
    """Turn tomllib's `… (at line 3, column 5)` into a message that begins with `PATH:LINE`."""
    match = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", message)
    line = (match[1] if match else None) or text.count("\n") + 1
    problem = message[: match.start()] if match else message
    return f"{path}:{line}: is not TOML: {problem}"
