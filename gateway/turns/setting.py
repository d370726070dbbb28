"""What the turns of one conversation run with; `gateway.turns.models` puts it together."""

from pathlib import Path

import msgspec

from agent.model.learned import LearnedTargets
from agent.providers.registry import Target
from agent.tools.drafts import DraftStore
from agent.tools.registry import ToolRegistry
from agent.turn import TurnLimits


class TurnSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Whom they ask, with which tools and words, and how far they may go."""

    targets: tuple[Target, ...]  # asked in this order
    tools: ToolRegistry
    system: str
    workspace: Path
    drafts: DraftStore
    limits: TurnLimits
    experience: LearnedTargets
    show_reasoning: bool = False

    def first_label(self, now: float) -> str:
        """Name the target that will be asked first, as far as that can be told without asking."""
        for target in self.targets:
            known = self.experience.get(
                target.provider.name, target.settings.base_url or "", target.model
            )
            if (known.breaker.open_until or 0.0) <= now:
                return target.label
        return self.targets[0].label
