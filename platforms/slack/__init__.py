"""Slack: events by Socket Mode or signed requests, answers as streams and Markdown blocks.

  config     `[platforms.slack]`
  manifest   Sans-IO: the app as Slack must be told to make it; guide: how somebody gets it
  adapter    the platform as the gateway knows it
coming in
  sockets    one WebSocket after another, over which envelopes come
  signed     or requests that Slack sends us
  events     Sans-IO: what they say
  people     who somebody is, and of which workspace
  home       who opened a chat with us and was greeted
  places     Sans-IO: the conversations in use, and what was last seen there
going out
  show       messages: posted, found again, growing, closed
  cards      Sans-IO: what a stream is told, words and tool calls
  presence   that we are at work in a thread, and that we are not any more
  files      files, both ways
  text       Sans-IO: words and blocks
  budget     Sans-IO: how often methods may be called
  calls      the Web API, and what can go wrong with it
  probe      whether the app can work, asked without connecting it
"""

from importlib import import_module
from importlib.util import find_spec

from platforms.core.contract import Adapter, PlatformSpec, Surroundings
from platforms.core.probed import ProbeResult
from platforms.slack.config import SlackConfig
from platforms.slack.guide import GUIDE

__all__ = ["SPEC", "SlackConfig"]

for _library in ("slack_sdk", "aiohttp"):
    if find_spec(_library) is None:
        raise ModuleNotFoundError(name=_library)


def _build(config: SlackConfig, surroundings: Surroundings) -> Adapter:
    # The libraries take 150 ms to import: only who uses Slack should wait for them.
    adapter: Adapter = import_module("platforms.slack.adapter").SlackAdapter(config, surroundings)
    return adapter


async def _probe(config: SlackConfig, *, alone: bool = False) -> ProbeResult:
    probed: ProbeResult = await import_module("platforms.slack.probe").probe(config, alone=alone)
    return probed


SPEC = PlatformSpec(
    name="slack",
    config=SlackConfig,
    build=_build,
    secrets={"bot_token": "SLACK_BOT_TOKEN", "app_token": "SLACK_APP_TOKEN"},
    guide=GUIDE,
    probe=_probe,
)
