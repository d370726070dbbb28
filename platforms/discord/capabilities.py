"""Sans-IO: capabilities and limits of Discord, as data."""

from platforms.core.contract import Capabilities, Live, Repeat, Unit
from platforms.discord.format import MAX_CHARS, RESERVED_CHARS
from platforms.discord.payloads import MAX_BUTTONS

MAX_FILE_BYTES = 10 * 1024 * 1024

NONCE_SECONDS = 120.0
"""Seconds for which Discord reliably recognizes a repeated nonce."""

CAPABILITIES = Capabilities(
    text_limit=MAX_CHARS - RESERVED_CHARS,
    unit=Unit.CHARACTERS,
    live=Live.EDIT,
    repeat=Repeat.NONCE,
    live_interval=1.2,
    burst=5,
    per_second=1.0,
    threads_apart=True,  # a thread is a channel
    account_burst=4,  # burst plus refill stays below 50 in any second
    account_per_second=40.0,
    typing_interval=8.0,  # Discord shows the typing indicator for 10 seconds
    buttons=MAX_BUTTONS,
    reactions=True,
    files=MAX_FILE_BYTES,
    caption_limit=MAX_CHARS,
    repeat_seconds=NONCE_SECONDS,
    messages=10,
)
