"""A scripted person, and scripted platforms and services."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent.probe import ProbedModel
from agent.settings import TargetSettings
from gateway.errors import HoldfastError
from gateway.operate.setup.asking import SetupQuestion
from gateway.operate.setup.draft import ConfigDraft
from gateway.operate.setup.local_servers import LocalModelServer
from gateway.operate.setup.places import ConfigTarget
from platforms.core.contract import PlatformSpec
from platforms.core.probed import ProbeResult
from sessions.values.finding import fail, ok

TELEGRAM = "123456789:AAE-a_token_of-a_telegram_bot"
OTHER = "987654321:AAE-another_token_of_telegram"


class Person:
    """A prompter with scripted answers."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[SetupQuestion] = []
        self.said: list[str] = []
        self.refused: list[str] = []

    def say(self, text: str = "") -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.said.append(f"  ! {text}")

    def ask(self, question: SetupQuestion) -> str:
        self.asked.append(question)
        assert self.answers, f"nobody thought of: {question.prompt}"
        return self.answers.pop(0) or question.default or ""

    def reject(self, question: SetupQuestion, error: HoldfastError) -> None:
        self.refused.append(str(error))

    @property
    def words(self) -> list[str]:
        return [each.prompt for each in self.asked]

    @property
    def screen(self) -> str:
        return "\n".join(self.said)


class Answers:
    """Scripted checks: results by a bot's token and a model's settings."""

    def __init__(
        self,
        bots: Mapping[str, ProbeResult | Exception] | None = None,
        model: Callable[[TargetSettings], ProbedModel | None] | None = None,
        servers: Sequence[LocalModelServer] = (),
    ) -> None:
        self.bots = bots or {}
        self.configs: list[Any] = []
        self.models: list[TargetSettings] = []
        self._model = model or works
        self._servers = servers

    def probe_bot(self, spec: PlatformSpec, config: Struct) -> ProbeResult | None:
        self.configs.append(config)
        secret: Any = getattr(config, next(iter(spec.secrets)))
        found = self.bots.get(secret.reveal())
        if isinstance(found, Exception):
            raise found
        return found

    def probe_model(self, settings: TargetSettings, *, answers: bool) -> ProbedModel | None:
        self.models.append(settings)
        return self._model(settings)

    def find_servers(self) -> Sequence[LocalModelServer]:
        return self._servers


def works(settings: TargetSettings) -> ProbedModel:
    name = settings.name or "the-only-one"
    label = f"{settings.provider}/{name}"
    return ProbedModel(label, name, (name,), (ok("answer", "streams"),))


def broken(subject: str, text: str) -> ProbedModel:
    return ProbedModel("openai/x", "x", (), (fail(subject, text, "Mend it."),))


def place_in(folder: Path, **environ: str) -> ConfigTarget:
    home = folder / "home"
    path = home / ".config/holdfast/holdfast.toml"
    return ConfigTarget(path, {"HOME": str(home), **environ}, 1000)


def draft_of(text: str | None = None) -> ConfigDraft:
    return ConfigDraft(text, lambda name: f"credential:{name}")
