"""Sans-IO: what we send to Discord: messages, buttons, commands."""

import hashlib
import re
from collections.abc import Iterable

from platforms.core.contract import Button, MenuEntry
from platforms.discord.rooms import Payload

MOST_BUTTONS = 25

_PREFIX = "hf:"
_LONGEST_CUSTOM_ID = 100
_LONGEST_LABEL = 80
_IN_A_ROW = 5
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

DEFERRED_ANSWER, DEFERRED_CHANGE = 5, 6  # kinds of answer to an interaction

_COMMAND_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_LONGEST_DESCRIPTION = 100
_IN_SERVERS, _WITH_BOT = 0, 1


def nonce_of(op: str) -> str:
    """What makes Discord recognise a repeat: 25 characters at most, the same for the same op."""
    return hashlib.blake2b(op.encode(), digest_size=12).hexdigest()


def message(
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
        "components": rows(buttons),
        "allowed_mentions": _NO_MENTIONS,
    }
    if op:
        # Whoever makes a model write an address must not have Discord visit it at once.
        payload["flags"] = _NO_PREVIEWS
        payload["nonce"] = nonce_of(op)
        payload["enforce_nonce"] = True
    if reply_to and reply_to.isdigit():
        payload["message_reference"] = {"message_id": reply_to, "fail_if_not_exists": False}
    if file_name:
        payload["attachments"] = [{"id": 0, "filename": file_name}]
    return payload


# --- buttons -------------------------------------------------------------------------------------


def rows(buttons: Iterable[Button]) -> list[Payload]:
    """Lay out buttons; what is pressed comes back by its id alone, so a restart does no harm."""
    made = [_button(button) for button in buttons][:MOST_BUTTONS]
    return [
        {"type": _ROW, "components": made[start : start + _IN_A_ROW]}
        for start in range(0, len(made), _IN_A_ROW)
    ]


def _button(button: Button) -> Payload:
    return {
        "type": _BUTTON,
        "style": _STYLES.get(button.action.partition(":")[0], _GREY),
        "label": button.label[:_LONGEST_LABEL],
        "custom_id": custom_id(button.action),
    }


def custom_id(action: str) -> str:
    """Name a button after what it does; raises `ValueError` when that is too long."""
    made = _PREFIX + action
    if len(made) > _LONGEST_CUSTOM_ID:
        msg = f"a button's action may have {_LONGEST_CUSTOM_ID - len(_PREFIX)} characters"
        raise ValueError(msg)
    return made


def action_of(name: str) -> str | None:
    """What a button does; None when it is not one of ours."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def deferred(kind: int) -> Payload:
    """Tell Discord within its 3 seconds that an interaction has arrived."""
    return (
        {"type": kind, "data": {"flags": _EPHEMERAL}} if kind == DEFERRED_ANSWER else {"type": kind}
    )


# --- commands ------------------------------------------------------------------------------------


def commands(menu: Iterable[MenuEntry]) -> list[Payload]:
    """The menu of slash commands; each takes what follows it as one text."""
    return [_command(entry) for entry in menu if _COMMAND_NAME.fullmatch(entry.word)][:100]


def _command(entry: MenuEntry) -> Payload:
    payload: Payload = {
        "name": entry.word,
        "type": 1,
        "description": entry.summary[:_LONGEST_DESCRIPTION] or entry.word,
        "contexts": [_IN_SERVERS, _WITH_BOT],
    }
    if entry.args:
        needed = not entry.args.startswith("[")
        payload["options"] = [
            {
                "type": _STRING,
                "name": "text",
                "description": entry.args[:_LONGEST_DESCRIPTION],
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
