"""Sans-IO: limits and abilities of Slack, in threads and in direct messages."""

import msgspec

from platforms.core.contract import Capabilities, Live, Repeat, Unit

MAX_FILE_BYTES = 100 * 1024 * 1024
"""Slack takes a gigabyte; this much can be uploaded within the timeout of an op."""

CAPABILITIES = Capabilities(
    text_limit=11_000,  # a markdown block takes 12,000
    unit=Unit.CHARACTERS,
    live=Live.STREAM,
    repeat=Repeat.LOOKUP,
    live_interval=1.0,
    # Slack counts calls per method, over all chats or per channel, but never everything that
    # happens in one chat. `platforms.slack.rate_limit` enforces Slack's own limits.
    burst=30,
    per_second=10.0,
    typing_interval=60.0,  # Slack shows a status for two minutes
    typing_ends=True,
    status=True,
    tasks=True,
    threads_apart=True,
    buttons=20,
    reactions=True,
    files=MAX_FILE_BYTES,
    caption_limit=750,  # a caption has no blocks and every character escaped, in 3,900 bytes
    reply=False,  # a reply on Slack opens a thread below the message
    messages=5,
    command="!{word}",
)

DM_CAPABILITIES = msgspec.structs.replace(
    CAPABILITIES, live=Live.EDIT, live_interval=1.3, status=False, tasks=False
)
"""In a DM a message is edited, because a stream is a reply in a thread and a DM has none."""
