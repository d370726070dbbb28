"""Setting of a turn: models, tools, prompt and limits, assembled by `gateway.turns.models`."""

from pathlib import Path

import msgspec

from agent.model.answer_options import AnswerOptions
from agent.model.learned import LearnedTargets
from agent.providers.registry import Target
from agent.tools.drafts import DraftStore
from agent.tools.registry import ToolRegistry
from agent.turn import TurnLimits
from gateway.access.api_keys import Requester


class TurnSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Models, tools, prompt and limits of one turn."""

    targets: tuple[Target, ...]  # tried in this order
    tools: ToolRegistry
    system: str
    workspace: Path
    drafts: DraftStore
    limits: TurnLimits
    experience: LearnedTargets
    show_reasoning: bool = False
    options: AnswerOptions = AnswerOptions()  # of the client's request
    requester: Requester | None = None  # sender of an API request
    sent_requests: int = 0  # of a turn that goes on with results of its client

    def first_label(self, now: float) -> str:
        """Return the label of the first target whose circuit breaker is closed."""
        for target in self.targets:
            known = self.experience.get(
                target.provider.name, target.settings.base_url or "", target.model
            )
            if (known.breaker.open_until or 0.0) <= now:
                return target.label
        return self.targets[0].label
