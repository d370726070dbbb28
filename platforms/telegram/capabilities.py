"""Sans-IO: what Telegram can do, as data."""

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
    burst=10,  # about one a second, with bursts
    per_second=1.0,
    account_burst=3,  # with what grows back, less than thirty in any second
    account_per_second=26.0,
    typing_interval=4.5,
    buttons=8,
    reactions=True,
    files=MAX_UPLOAD_BYTES,
    caption_limit=CAPTION_LIMIT,
)
"""A chat with one person."""

PRIVATE_WITHOUT_DRAFTS = msgspec.structs.replace(
    PRIVATE,
    live=Live.EDIT,
    live_interval=1.5,
    rest=1.0,  # two edits within a second may be one too many
)
"""The same where drafts are refused."""

GROUP = msgspec.structs.replace(
    PRIVATE,
    live=Live.EDIT,  # drafts are refused there
    live_interval=3.0,
    rest=1.0,  # two edits within a second may be one too many
    burst=5,
    per_second=20 / 60,
    per_minute=20,  # edits count too
)
"""A group: all its topics share what it may take."""
