"""The whole way: what is asked in which order, then what is written."""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from agent.settings import TargetSettings
from gateway.config.loader import Options, Specs, check, load
from gateway.config.values import read_text
from gateway.errors import CannotStart, ConfigError
from gateway.operate.setup.asking import Asker, Unanswered
from gateway.operate.setup.bots import Bot, Bots
from gateway.operate.setup.budget import ask_budget, is_known
from gateway.operate.setup.checks import Checks
from gateway.operate.setup.draft import Draft
from gateway.operate.setup.files import Files
from gateway.operate.setup.model import Chosen, Model, Wanted
from gateway.operate.setup.places import Place

_BACKUP = ".bak"


class Answers(Struct, frozen=True):
    """What was decided, before anything is written."""

    bots: tuple[Bot, ...]
    model: Chosen


class Written(Struct, frozen=True):
    """What became of the files."""

    changed: bool
    backup: str = ""
    warnings: tuple[str, ...] = ()


def read_draft(place: Place, specs: Specs) -> Draft:
    """Begin with what is there; raises `ConfigError` when that cannot be read."""
    try:
        return Draft(place.path.read_bytes().decode("utf-8-sig"), place.reference)
    except FileNotFoundError:
        return Draft(None, place.reference)
    except (OSError, ValueError) as error:
        problems = check(Options(place.path), place.environ, specs).problems
        told = problems or (f"{place.path}: cannot be changed by a program: {error}",)
        raise ConfigError(*told, "Mend it, or move it away; nothing was changed.") from error


def converse(
    asker: Asker, place: Place, draft: Draft, checks: Checks, specs: Specs, wanted: Wanted
) -> Answers:
    """Ask for everything; what is missing on a command line is told all at once."""
    missing: list[str] = []
    bots: list[Bot] = []
    chosen: list[Chosen] = []
    present = _introduce(asker, place, draft, specs)

    def tried(part: Callable[[], None]) -> None:
        try:
            part()
        except Unanswered as error:
            missing.extend(error.lines)

    asking = Bots(asker, draft, checks, place, specs)
    names: list[str] = []
    tried(lambda: names.extend(asking.choose()))
    for name in names:
        tried(lambda name=name: bots.append(asking.set_up(name)))  # type: ignore[misc]  # its default is the name
    tried(lambda: chosen.append(Model(asker, draft, checks, place).choose(wanted, present)))
    if chosen and chosen[0].is_paid and is_known():
        tried(lambda: ask_budget(asker, draft, chosen[0].settings))
    if missing:
        raise Unanswered(*missing)
    return Answers(tuple(bots), chosen[0])


def _introduce(asker: Asker, place: Place, draft: Draft, specs: Specs) -> TargetSettings | None:
    """Show what is there; gives the model that is configured."""
    if not place.path.exists():
        asker.say(f"The configuration will be {place.path}.")
        _note_environment(asker, place.environ)
        return None
    platforms = draft.get(("platforms",))
    named = ", ".join(platforms) if isinstance(platforms, dict) and platforms else "no platform"
    asker.say(f"There is {place.path} already, with {named}; what you do not change stays.")
    _note_environment(asker, place.environ)
    try:
        loaded = load(Options(place.path), place.environ, specs)
    except ConfigError as error:
        for line in error.lines:
            asker.say(f"  ! {line}")
        return None
    model = draft.get(("model",))
    own = isinstance(model, dict) and {"provider", "name", "base_url", "api_key"} & set(model)
    return loaded.settings.model if own and loaded.settings.model.provider != "demo" else None


def _note_environment(asker: Asker, environ: Mapping[str, str]) -> None:
    names = sorted(name for name in environ if name.startswith("HOLDFAST_") and "__" in name)
    if names:
        asker.say(f"Also counting, from the environment: {', '.join(names)}.")


def write(place: Place, draft: Draft, specs: Specs) -> Written:
    """Write the secrets and the configuration, which must work; else all stays as it was."""
    path = place.path.resolve()
    text = draft.text().encode()
    before = path.read_bytes() if path.exists() else None
    folder = place.credentials
    try:
        with Files() as files:
            files.folder(path.parent, 0o755 if place.mode == 0o644 else 0o700)  # noqa: PLR2004 - what all may read must be reached
            fresh = {
                name: secret.encode() + b"\n"
                for name, secret in draft.secrets.items()
                if not _holds(folder / name, secret)
            }
            if fresh:
                files.folder(folder, 0o700)
            for name, secret in fresh.items():
                files.put(folder / name, secret, 0o600)
            mode = path.stat().st_mode & 0o777 if before is not None else place.mode
            with files.beside(place.path.absolute(), text, mode) as candidate:  # where it is read
                report = check(Options(candidate), place.environ, specs)
                lines = [each.replace(str(candidate), str(place.path)) for each in report.problems]
            if lines:
                raise ConfigError(
                    *lines, "The configuration would not work so; nothing was changed."
                )
            backup = ""
            if before is not None and before != text:
                backup = f"{path}{_BACKUP}"
                files.put(path.with_name(path.name + _BACKUP), before, mode)
            if before != text:
                files.put(path, text, mode)
    except OSError as error:
        msg = f"{error.filename or path} cannot be written: {error.strerror}; nothing was changed."
        raise CannotStart(msg) from error
    warnings = tuple(each.replace(str(candidate), str(place.path)) for each in report.warnings)
    return Written(bool(fresh) or before != text, backup, warnings)


def _holds(path: Path, secret: str) -> bool:
    found, _ = read_text(path)
    return found.strip() == secret
