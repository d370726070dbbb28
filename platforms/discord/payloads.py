"""Sans-IO: request bodies for Discord: messages, buttons, slash commands."""

import hashlib
import re
from collections.abc import Iterable

from platforms.core.actions import ButtonAction, read_action
from platforms.core.contract import Button, MenuEntry
from platforms.discord.rooms import Payload

MAX_BUTTONS = 25

_PREFIX = "hf:"
_MAX_CUSTOM_ID_CHARS = 100
_MAX_LABEL_CHARS = 80
_BUTTONS_PER_ROW = 5
_ROW, _BUTTON = 1, 2
_GREY, _GREEN, _RED = 2, 3, 4
_STYLES = {
    ButtonAction.APPROVE: _GREEN,
    ButtonAction.DENY: _RED,
    ButtonAction.STOP: _RED,
}
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

DEFERRED_ANSWER, DEFERRED_UPDATE = 5, 6  # interaction response types

_COMMAND_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_MAX_DESCRIPTION_CHARS = 100
_GUILD_CONTEXT, _BOT_DM_CONTEXT = 0, 1


def message_nonce(op: str) -> str:
    """Return the nonce of an op id, by which Discord recognizes a repeated message.

    Discord allows 25 characters; the same op id always gives the same nonce.
    """
    return hashlib.blake2b(op.encode(), digest_size=12).hexdigest()


def message_payload(
    text: str,
    buttons: tuple[Button, ...] = (),
    *,
    op: str = "",
    reply_to: str | None = None,
    file_name: str = "",
) -> Payload:
    """Return the body of a message; with an op id, Discord creates the message only once."""
    payload: Payload = {
        "content": text,
        "components": button_rows(buttons),
        "allowed_mentions": _NO_MENTIONS,
    }
    if op:
        # Previews are off, because Discord would fetch addresses that a model wrote.
        payload["flags"] = _NO_PREVIEWS
        payload["nonce"] = message_nonce(op)
        payload["enforce_nonce"] = True
    if reply_to and reply_to.isdigit():
        payload["message_reference"] = {"message_id": reply_to, "fail_if_not_exists": False}
    if file_name:
        payload["attachments"] = [{"id": 0, "filename": file_name}]
    return payload


def private_payload(text: str, buttons: tuple[Button, ...]) -> Payload:
    """Return the body of an answer that only the sender of a slash command sees."""
    return {**message_payload(text, buttons), "flags": _EPHEMERAL | _NO_PREVIEWS}


# --- buttons -------------------------------------------------------------------------------------


def button_rows(buttons: Iterable[Button]) -> list[Payload]:
    """Return rows of buttons, which survive a restart because each id contains the action."""
    components = [_button(button) for button in buttons][:MAX_BUTTONS]
    return [
        {"type": _ROW, "components": components[start : start + _BUTTONS_PER_ROW]}
        for start in range(0, len(components), _BUTTONS_PER_ROW)
    ]


def _button(button: Button) -> Payload:
    return {
        "type": _BUTTON,
        "style": _button_style(button.action),
        "label": button.label[:_MAX_LABEL_CHARS],
        "custom_id": custom_id(button.action),
    }


def _button_style(text: str) -> int:
    action, _ = read_action(text)
    return _STYLES.get(action, _GREY) if action else _GREY


def custom_id(action: str) -> str:
    """Return the id of a button with this action; raises `ValueError` if the action is too long."""
    name = _PREFIX + action
    if len(name) > _MAX_CUSTOM_ID_CHARS:
        msg = f"a button's action is limited to {_MAX_CUSTOM_ID_CHARS - len(_PREFIX)} characters"
        raise ValueError(msg)
    return name


def parse_custom_id(name: str) -> str | None:
    """Return the action of a button; None if the button does not belong to the gateway."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def deferred_response(kind: int) -> Payload:
    """Return the body that acknowledges an interaction."""
    return (
        {"type": kind, "data": {"flags": _EPHEMERAL}} if kind == DEFERRED_ANSWER else {"type": kind}
    )


# --- commands ------------------------------------------------------------------------------------


def command_payloads(menu: Iterable[MenuEntry]) -> list[Payload]:
    """Return the slash commands of a menu; a command takes its arguments as one text option."""
    return [_command_payload(entry) for entry in menu if _COMMAND_NAME.fullmatch(entry.word)][:100]


def _command_payload(entry: MenuEntry) -> Payload:
    payload: Payload = {
        "name": entry.word,
        "type": 1,
        "description": entry.summary[:_MAX_DESCRIPTION_CHARS] or entry.word,
        "contexts": [_GUILD_CONTEXT, _BOT_DM_CONTEXT],
    }
    if entry.args or entry.admin_args:
        payload["options"] = [
            {
                "type": _STRING,
                "name": "text",
                "description": _argument_description(entry)[:_MAX_DESCRIPTION_CHARS],
                "required": bool(entry.args) and not entry.args.startswith("["),
            }
        ]
    return payload


def _argument_description(entry: MenuEntry) -> str:
    """Return the arguments of a command; Discord shows all people the same menu."""
    for_admins = f"{entry.admin_args} (admins)" if entry.admin_args else ""
    return " | ".join(filter(None, (entry.args, for_admins)))


def invite_link(application: str) -> str:
    """Return the link that adds the bot to a server with the permissions it needs."""
    return (
        f"https://discord.com/oauth2/authorize?client_id={application}"
        f"&scope=bot+applications.commands&permissions={_PERMISSIONS}"
    )
