"""Sans-IO: capabilities and limits of Telegram, as data."""

import msgspec

from platforms.core.contract import Capabilities, Live, Repeat, Unit

TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024
MAX_ACTION_BYTES = 64
MAX_UPLOAD_BYTES = 50_000_000
MAX_PHOTO_BYTES = 10_000_000
MAX_DOWNLOAD_BYTES = 20_000_000

PRIVATE = Capabilities(
    text_limit=TEXT_LIMIT,
    unit=Unit.UTF16,
    live=Live.DRAFT,
    repeat=Repeat.MARK,
    live_interval=1.0,
    burst=10,  # Telegram's guideline: one message a second per chat, short bursts allowed
    per_second=1.0,
    account_burst=3,  # burst plus refill stays below 30 in any second
    account_per_second=26.0,
    typing_interval=4.5,
    buttons=8,
    reactions=True,
    files=MAX_UPLOAD_BYTES,
    caption_limit=CAPTION_LIMIT,
    messages=10,
)
"""Private chats that show drafts."""

PRIVATE_WITHOUT_DRAFTS = msgspec.structs.replace(
    PRIVATE,
    live=Live.EDIT,
    live_interval=1.5,
    rest=1.0,  # two edits within one second may exceed the rate limit
)
"""Private chats in which Telegram refuses drafts."""

GROUP = msgspec.structs.replace(
    PRIVATE,
    live=Live.EDIT,  # Telegram refuses drafts in groups
    live_interval=3.0,
    rest=1.0,  # two edits within one second may exceed the rate limit
    burst=5,
    per_second=20 / 60,
    per_minute=20,  # edits count too
)
"""Groups and supergroups; all topics of a group share its rate limit."""
