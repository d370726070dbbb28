"""Sans-IO: what we send to Discord: messages, buttons, commands."""

import hashlib
import re
from collections.abc import Iterable

from platforms.core.contract import Button, MenuEntry
from platforms.discord.rooms import Payload

MAX_BUTTONS = 25

_PREFIX = "hf:"
_MAX_CUSTOM_ID_CHARS = 100
_MAX_LABEL_CHARS = 80
_BUTTONS_PER_ROW = 5
_ROW, _BUTTON = 1, 2
_GREY, _GREEN, _RED = 2, 3, 4
_STYLES = {"approve": _GREEN, "deny": _RED, "stop": _RED}
_STRING = 3
_NO_MENTIONS: Payload = {"parse": [], "replied_user": False}
_NO_PREVIEWS = 1 << 2
_EPHEMERAL = 1 << 6

_PERMISSIONS = (
    1 << 6  # add reactions
    | 1 << 10  # view channels
    | 1 << 11  # send messages
    | 1 << 15  # attach files
    | 1 << 16  # read the history
    | 1 << 38  # send messages in threads
)

DEFERRED_ANSWER, DEFERRED_UPDATE = 5, 6  # kinds of answer to an interaction

_COMMAND_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_MAX_DESCRIPTION_CHARS = 100
_GUILD_CONTEXT, _BOT_DM_CONTEXT = 0, 1


def message_nonce(op: str) -> str:
    """What makes Discord recognise a repeat: 25 characters at most, the same for the same op."""
    return hashlib.blake2b(op.encode(), digest_size=12).hexdigest()


def message_payload(
    text: str,
    buttons: tuple[Button, ...] = (),
    *,
    op: str = "",
    reply_to: str | None = None,
    file_name: str = "",
) -> Payload:
    """A message as Discord wants it; one with an op id is new, and shown once only."""
    payload: Payload = {
        "content": text,
        "components": button_rows(buttons),
        "allowed_mentions": _NO_MENTIONS,
    }
    if op:
        # Whoever makes a model write an address must not have Discord visit it at once.
        payload["flags"] = _NO_PREVIEWS
        payload["nonce"] = message_nonce(op)
        payload["enforce_nonce"] = True
    if reply_to and reply_to.isdigit():
        payload["message_reference"] = {"message_id": reply_to, "fail_if_not_exists": False}
    if file_name:
        payload["attachments"] = [{"id": 0, "filename": file_name}]
    return payload


# --- buttons -------------------------------------------------------------------------------------


def button_rows(buttons: Iterable[Button]) -> list[Payload]:
    """Lay out buttons; what is pressed comes back by its id alone, so a restart does no harm."""
    made = [_button(button) for button in buttons][:MAX_BUTTONS]
    return [
        {"type": _ROW, "components": made[start : start + _BUTTONS_PER_ROW]}
        for start in range(0, len(made), _BUTTONS_PER_ROW)
    ]


def _button(button: Button) -> Payload:
    return {
        "type": _BUTTON,
        "style": _STYLES.get(button.action.partition(":")[0], _GREY),
        "label": button.label[:_MAX_LABEL_CHARS],
        "custom_id": custom_id(button.action),
    }


def custom_id(action: str) -> str:
    """Name a button after what it does; raises `ValueError` when that is too long."""
    made = _PREFIX + action
    if len(made) > _MAX_CUSTOM_ID_CHARS:
        msg = f"a button's action may have {_MAX_CUSTOM_ID_CHARS - len(_PREFIX)} characters"
        raise ValueError(msg)
    return made


def parse_custom_id(name: str) -> str | None:
    """What a button does; None when it is not one of ours."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def deferred_response(kind: int) -> Payload:
    """Tell Discord within its 3 seconds that an interaction has arrived."""
    return (
        {"type": kind, "data": {"flags": _EPHEMERAL}} if kind == DEFERRED_ANSWER else {"type": kind}
    )


# --- commands ------------------------------------------------------------------------------------


def command_payloads(menu: Iterable[MenuEntry]) -> list[Payload]:
    """The menu of slash commands; each takes what follows it as one text."""
    return [_command_payload(entry) for entry in menu if _COMMAND_NAME.fullmatch(entry.word)][:100]


def _command_payload(entry: MenuEntry) -> Payload:
    payload: Payload = {
        "name": entry.word,
        "type": 1,
        "description": entry.summary[:_MAX_DESCRIPTION_CHARS] or entry.word,
        "contexts": [_GUILD_CONTEXT, _BOT_DM_CONTEXT],
    }
    if entry.args:
        needed = not entry.args.startswith("[")
        payload["options"] = [
            {
                "type": _STRING,
                "name": "text",
                "description": entry.args[:_MAX_DESCRIPTION_CHARS],
                "required": needed,
            }
        ]
    return payload


def invite_link(application: str) -> str:
    """Where somebody who runs a server lets us in, with the rights that are needed."""
    return (
        f"https://discord.com/oauth2/authorize?client_id={application}"
        f"&scope=bot+applications.commands&permissions={_PERMISSIONS}"
    )
