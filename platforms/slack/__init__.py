"""Slack: events by Socket Mode or signed requests, answers as streams and Markdown blocks.

  config      `[platforms.slack]`; manifest: the app to create in Slack; guide: set-up steps
  adapter     lifecycle and delivery of ops; capabilities: limits of Slack
receiving
  socket_mode the WebSocket connections; webhook: signed requests
  dispatch    the slack-bolt app behind both
  receive     sender, context and commit of an event; catch_up: messages Slack did not deliver
  decode      Sans-IO: payloads as inbound events
  people      users and their workspaces; held: presses of people who are not known yet
  welcome     greetings and suggested prompts
  read_marks  Sans-IO: conversations in use and the last message seen in each
sending
  send        posts, streams, edits and lookups of our messages; files: up- and downloads
  format      Sans-IO: text and blocks; stream_chunks: chunks of a stream and task cards
  status      status line and Stop button of a thread
  calls       the Web API; errors: errors that a call raises; rate_limit: Slack's call limits
  probe       checks tokens and scopes without connecting
"""

from importlib.util import find_spec

from platforms.core.contract import Adapter, PlatformSpec, Surroundings
from platforms.core.probed import ProbeResult
from platforms.slack.config import SlackConfig
from platforms.slack.guide import GUIDE

__all__ = ["SPEC", "SlackConfig"]

for _library in ("slack_bolt", "slack_sdk", "aiohttp"):
    if find_spec(_library) is None:
        raise ModuleNotFoundError(name=_library)


def _build(config: SlackConfig, surroundings: Surroundings) -> Adapter:
    # The libraries take a quarter of a second to import, so only a gateway with Slack loads them.
    from platforms.slack.adapter import SlackAdapter

    return SlackAdapter(config, surroundings)


async def _probe(config: SlackConfig, *, alone: bool = False) -> ProbeResult:
    from platforms.slack.probe import probe

    return await probe(config, alone=alone)


SPEC = PlatformSpec(
    name="slack",
    config=SlackConfig,
    build=_build,
    secrets={"bot_token": "SLACK_BOT_TOKEN", "app_token": "SLACK_APP_TOKEN"},
    guide=GUIDE,
    probe=_probe,
)
