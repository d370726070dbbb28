"""The set-up from the first question to the written files."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from agent.settings import TargetSettings
from gateway.config.loader import ConfigOptions, PlatformSpecs, check, load, read_model
from gateway.config.values import read_text
from gateway.errors import CannotStart, ConfigError
from gateway.operate.setup.asking import AnswerError, Prompter, SetupStopped, confirm
from gateway.operate.setup.bots import BotSetup, ConfiguredBot
from gateway.operate.setup.budget import ask_budget, is_supported
from gateway.operate.setup.checks import SetupChecks
from gateway.operate.setup.draft import ConfigDraft
from gateway.operate.setup.files import FileTransaction
from gateway.operate.setup.mcp_servers import ask_mcp_servers
from gateway.operate.setup.model import ChosenModel, ModelSetup, RequestedModel, has_model
from gateway.operate.setup.places import ConfigTarget

_BACKUP_SUFFIX = ".bak"
_LINE_NUMBER = re.compile(r":\d+(?=: )")


class SetupAnswers(Struct, frozen=True):
    """All answers, before anything is written."""

    bots: tuple[ConfiguredBot, ...]
    model: ChosenModel
    known_problems: tuple[str, ...] = ()  # problems of the existing file that were accepted


class WriteResult(Struct, frozen=True):
    """Result of writing the files."""

    changed: bool
    backup: str = ""
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # accepted problems that the file still has


class _ExistingConfig(Struct, frozen=True):
    """The configuration before the questions."""

    model: TargetSettings | None = None  # None: none is configured, or it cannot be read
    problems: tuple[str, ...] = ()


def read_draft(target: ConfigTarget, specs: PlatformSpecs) -> ConfigDraft:
    """Load the current configuration; raise `ConfigError` if the file cannot be read or edited."""
    try:
        return ConfigDraft(target.path.read_bytes().decode("utf-8-sig"), target.secret_reference)
    except FileNotFoundError:
        return ConfigDraft(None, target.secret_reference)
    except (OSError, ValueError) as error:
        problems = check(ConfigOptions(target.path), target.environ, specs).problems
        lines = problems or (f"{target.path}: cannot be edited by a program: {error}",)
        raise ConfigError(*lines, "Fix or move the file; nothing was changed.") from error


def ask_all(
    prompter: Prompter,
    target: ConfigTarget,
    draft: ConfigDraft,
    checks: SetupChecks,
    specs: PlatformSpecs,
    requested: RequestedModel,
) -> SetupAnswers:
    """Ask all questions; on a command line, raise one error that lists all missing answers.

    Problems of the existing configuration come first; raises `SetupStopped` if the person stops.
    """
    missing: list[str] = []
    bots: list[ConfiguredBot] = []
    chosen: list[ChosenModel] = []
    present = _show_existing(prompter, target, draft, specs)

    def attempt(part: Callable[[], None]) -> None:
        try:
            part()
        except AnswerError as error:
            missing.extend(error.lines)

    asking = BotSetup(prompter, draft, checks, target, specs)
    names: list[str] = []
    attempt(lambda: names.extend(asking.choose_platforms()))
    for name in names:
        attempt(lambda name=name: bots.append(asking.set_up(name)))  # type: ignore[misc]  # binds the loop variable
    attempt(
        lambda: chosen.append(
            ModelSetup(prompter, draft, checks, target).choose(requested, present.model)
        )
    )
    if chosen and chosen[0].is_paid and is_supported():
        attempt(lambda: ask_budget(prompter, draft, chosen[0].settings))
    attempt(lambda: ask_mcp_servers(prompter, draft, target))
    if missing:
        raise AnswerError(*missing)
    return SetupAnswers(tuple(bots), chosen[0], present.problems)


def _show_existing(
    prompter: Prompter, target: ConfigTarget, draft: ConfigDraft, specs: PlatformSpecs
) -> _ExistingConfig:
    """Describe the current configuration and its problems; offer to stop if there are any."""
    if not target.path.exists():
        prompter.say(f"The configuration will be written to {target.path}.")
        _show_environment(prompter, target.environ)
        return _ExistingConfig()
    platforms = draft.get(("platforms",))
    named = ", ".join(platforms) if isinstance(platforms, dict) and platforms else "no platform"
    prompter.say(f"{target.path} exists, with {named}. Settings that you do not change are kept.")
    _show_environment(prompter, target.environ)
    options = ConfigOptions(target.path)
    problems: tuple[str, ...] = ()
    model: TargetSettings | None
    try:
        model = load(options, target.environ, specs).settings.model
    except ConfigError as error:
        problems = error.lines
        _offer_stop(prompter, problems)
        model = read_model(options, target.environ, specs)
    is_kept = has_model(draft) and model is not None and model.provider != "demo"
    return _ExistingConfig(model if is_kept else None, problems)


def _offer_stop(prompter: Prompter, problems: Sequence[str]) -> None:
    """Show the problems of the configuration, and ask whether to go on with them."""
    for line in problems:
        prompter.warn(line)
    prompter.say(
        "Holdfast does not start with this. The questions below change only what they ask."
    )
    if not confirm(prompter, "problems", "Go on (no: stop and correct the file)", default=True):
        raise SetupStopped


def _show_environment(prompter: Prompter, environ: Mapping[str, str]) -> None:
    names = sorted(name for name in environ if name.startswith("HOLDFAST_") and "__" in name)
    if names:
        prompter.say(f"Also in effect, from the environment: {', '.join(names)}.")


def write_config(
    target: ConfigTarget,
    draft: ConfigDraft,
    specs: PlatformSpecs,
    known_problems: Sequence[str] = (),
) -> WriteResult:
    """Write secrets and configuration and check that they work; on failure restore everything.

    `known_problems` of the previous file do not prevent the writing; new ones do.
    """
    path = target.path.resolve()
    text = draft.render().encode()
    before = path.read_bytes() if path.exists() else None
    folder = target.credentials_folder
    try:
        with FileTransaction() as files:
            files.make_folder(path.parent, 0o755 if target.file_mode == 0o644 else 0o700)  # noqa: PLR2004 - a public file needs an accessible folder
            fresh = {
                name: secret.encode() + b"\n"
                for name, secret in draft.secrets.items()
                if not _contains(folder / name, secret)
            }
            if fresh:
                files.make_folder(folder, 0o700)
            for name, secret in fresh.items():
                files.write(folder / name, secret, 0o600)
            mode = path.stat().st_mode & 0o777 if before is not None else target.file_mode
            with files.temporary_file(
                target.path.absolute(), text, mode
            ) as candidate:  # beside the target, so that relative paths resolve
                report = check(ConfigOptions(candidate), target.environ, specs)
                lines = [line.replace(str(candidate), str(target.path)) for line in report.problems]
            if set(map(_without_line, lines)) - set(map(_without_line, known_problems)):
                raise ConfigError(
                    *lines, "The new configuration would not work; nothing was changed."
                )
            backup = ""
            if before is not None and before != text:
                backup = f"{path}{_BACKUP_SUFFIX}"
                files.write(path.with_name(path.name + _BACKUP_SUFFIX), before, mode)
            if before != text:
                files.write(path, text, mode)
    except OSError as error:
        msg = f"{error.filename or path} cannot be written: {error.strerror}; nothing was changed."
        raise CannotStart(msg) from error
    warnings = tuple(line.replace(str(candidate), str(target.path)) for line in report.warnings)
    return WriteResult(bool(fresh) or before != text, backup, warnings, tuple(lines))


def _without_line(problem: str) -> str:
    """Return a problem without its line number, which changes when lines are added above."""
    return _LINE_NUMBER.sub("", problem, count=1)


def _contains(path: Path, secret: str) -> bool:
    found, _ = read_text(path)
    return found.strip() == secret
