"""Whole turns, against scripted model servers."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.events import (
    AgentEvent,
    Ending,
    Notice,
    ReasoningReplaced,
    StepDone,
    TextDelta,
    TextReplaced,
    ToolStarted,
    TurnDone,
)
from agent.experience import Experience, Learned
from agent.loop import TurnLimits, TurnTask, run_turn
from agent.providers.registry import Target
from agent.settings import PriceSettings
from agent.spend import Usage
from agent.thoughts import Thoughts, read_thoughts
from agent.tools.contract import Risk, Tool
from agent.tools.drafts import Drafts
from agent.tools.files.write_file import write_file
from agent.tools.files.write_file_continue import write_file_continue
from agent.tools.registry import ToolRegistry
from sessions.records import Message, ToolCall
from tests.fakes.agent_kit import (
    SCALED,
    LoopClock,
    MemoryJournal,
    Workshop,
    drafts_in,
    learned_of,
    openai_target,
)
from tests.fakes.model_script import Script, body_of, calls, cut, ok
from tests.fakes.model_server import Handler, ModelServer, always

CLOCKS = msgspec.structs.replace(
    SCALED,
    first_token=0.5,
    gap_text=0.3,
    gap_tool=0.3,
    gap_reasoning=0.3,
    notice_after=6.0,  # a recovery is told of after a sixth of this
    backoff=0.01,
)
GO = Message("user", "go")
Setting = dict[str, Any]
