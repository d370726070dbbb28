"""Sans-IO: the text of every notice, by id.

`{c:stop}` becomes the command in the form of the platform that shows the notice. A part in
`[+ ...]` appears only if none of its fields is missing, empty or zero. `{n|message|messages}`
chooses the first text if the field is 1, else the second. Fields outside of such parts are required,
and a field that the text does not have is an error.
"""

import re
from collections.abc import Iterable

from platforms.core.actions import ButtonAction
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.text import excerpt
from sessions.values.visible_text import escape_markdown

CATALOGUE: dict[NoticeId, str] = {
    NoticeId.NO_OUTPUT: "⏳ {model}: no output for {n}s, reconnecting at {d}s",
    NoticeId.RECONNECTING: "↻ Connection to {provider} dropped, reconnecting",
    NoticeId.ANSWER_CONTINUES: "↻ Reply was cut off, continuing",
    NoticeId.TOOL_CALL_CUT: (
        "⚠️ {tool} was cut off and has NOT run. I'm asking for it in smaller parts; you don't "
        "need to do anything."
    ),
    NoticeId.MODEL_SWITCHED: "⇄ {a} is not responding, continuing with {b}",
    NoticeId.RATE_LIMITED: "⏱ {provider} rate limit, retrying in {n}s",
    NoticeId.TURN_FAILED: (
        "❌ Sorry, I couldn't finish this: {cause}."
        "[+  Done so far: {list}.]"
        "[+  Kept for a day as a draft: {draft}.]"
        "[+  {too_long}{c:new} starts a new conversation.]"
        "[+  {operator_told}The administrator has been notified.]"
    ),
    NoticeId.REASONING_USED_UP: (
        "⚠️ The model spent its whole output on reasoning, twice. Try {c:reasoning} low, or "
        "another model with {c:model}."
    ),
    NoticeId.DECLINED: "⚠️ The model declined[+ : {text}][+  {shown}to go on.]",
    NoticeId.STOPPED: (
        "⏹ Stopped. Your next message starts a new conversation; {c:resume} returns to this "
        "one."
        "[+  {tool} was running and may have taken effect.]"
        "[+  {n} queued {n|message is|messages are} kept with it.]"
    ),
    NoticeId.NOTHING_TO_STOP: "No active task to stop.",
    NoticeId.TURN_INTERRUPTED: (
        "♻️ I was restarted while working on “{request}”"
        "[+  (for {min} min)]."
        "[+  {tool}({preview}) was running: I don't know whether it finished, and I have not "
        "run it again.] Your next message starts a new conversation; {c:resume} continues this "
        "one."
    ),
    NoticeId.COMPACTING: "🗜 Compacting the conversation",
    NoticeId.DRAFT_KEPT: "💾 Kept {n} {n|line|lines} of {path} as a draft, continuing from there",
    NoticeId.FRESH_SESSION: (
        "🆕 New conversation: the previous one was stopped or interrupted. {c:resume} returns "
        "to it."
    ),
    NoticeId.QUEUED: (
        "⏳ Working on “{request}”"
        "[+  for {min} min]. {n} {n|message is|messages are} queued. {c:stop} stops the task."
    ),
    NoticeId.QUEUE_DONE: "",
    NoticeId.QUEUE_FULL: (
        "⛔ {limit} {limit|message is|messages are} already queued here, so I did NOT take this one. Please send "
        "it again later."
    ),
    NoticeId.RESTARTING_SOON: (
        "🔄 I'm restarting. Your message is saved, and I'll answer it right after."
    ),
    NoticeId.NEW_SESSION: (
        "🆕 New conversation.[+  {n} queued {n|message goes|messages go} into it.]"
    ),
    NoticeId.RESUMED: (
        "↩️ Back in the earlier conversation"
        "[+  “{title}”]."
        "[+  I'm answering {n} queued {n|message|messages} now.]"
    ),
    NoticeId.NOTHING_TO_RESUME: (
        "There's no earlier conversation to return to. {c:sessions} lists your conversations."
    ),
    NoticeId.RESUME_UNKNOWN: (
        "There's no earlier conversation “{name}” here. {c:sessions} lists your conversations."
    ),
    NoticeId.RESUME_FULL: (
        "⛔ I can't return to that conversation now: {held} {held|message is|messages are} queued "
        "there and {waiting} here, and {limit} may be queued together. Nothing has changed; please "
        "try again when fewer are queued."
    ),
    NoticeId.HELD_REFUSED: (
        "⛔ Only {limit} {limit|message|messages} may be queued here, so I did NOT take the {n} "
        "newest queued {n|one|ones}. Please send {n|it|them} again later."
    ),
    NoticeId.NOTHING_TO_RETRY: "There's no message to run again.",
    NoticeId.NOTHING_TO_UNDO: "There's nothing to undo.",
    NoticeId.UNDONE: "↩️ Undone: I removed “{request}” and its answer from the conversation.",
    NoticeId.BUSY: "I'm still writing an answer. {c:stop} stops it.",
    NoticeId.NOT_YOURS: "Only the person who asked last, or an admin, can do that.",
    NoticeId.ACCESS_LOST: (
        "🚫 The person who asked no longer has access."
        "[+  I stopped working on “{request}”.]"
        "[+  {n} queued {n|message was|messages were} dropped.]"
    ),
    NoticeId.EXPIRED_IDLE: (
        "🆕 New conversation, because the previous one was inactive for a long time."
    ),
    NoticeId.EXPIRED_DAILY: "🆕 New conversation, because a new one starts every day.",
    NoticeId.UNKNOWN_COMMAND: (
        "I don't know {word}.[+  Did you mean {nearest}?] {c:help} lists all commands."
    ),
    NoticeId.GREETING: (
        "👋 Hello! Just write to me, and I'll answer. {c:help} shows what else I can do."
    ),
    NoticeId.CLAIMED: (
        "🔑 You are now the owner of this gateway, with admin rights. {c:help} shows what you "
        "can do."
    ),
    NoticeId.CLAIM_REFUSED: (
        "This code is not valid (any more). The operator can create a new one with “holdfast "
        "pair claim”."
    ),
    NoticeId.CODE_DELAYED: "Too many codes were wrong. Please try again in {seconds} s.",
    NoticeId.PAIRING_CODE: (
        "👋 Hello! I don't know you yet. Please ask the owner to give you access with this "
        "code: {code}"
    ),
    NoticeId.PAIRING_PENDING: "Your request is still open. The owner has to approve it.",
    NoticeId.PAIRED: "✅ You now have access. Write to me, and I'll answer.",
    NoticeId.PAIR_REQUEST: (
        "👤 {name} ({principal}) asks for access. Approve: {c:pair} approve {code}"
    ),
    NoticeId.PAIR_APPROVED: "✅ {name} ({principal}) now has access.",
    NoticeId.PAIR_REVOKED: "🚫 {principal} no longer has access.",
    NoticeId.PAIR_UNKNOWN: "No open request has this code or id. {c:pair} list shows them.",
    NoticeId.PAIR_LIST: "{list}",
    NoticeId.HELP: "{list}[+ \n\nPrompts from MCP servers:\n{prompts}]",
    NoticeId.SESSIONS: "{list}\n{c:resume} NUMBER returns to one of them.",
    NoticeId.PAIR_USAGE: "Use: {c:pair} list, {c:pair} approve CODE (or ID) or {c:pair} revoke ID",
    NoticeId.REFUSED_MENTION: "👤 {name} ({principal}) mentioned me in {chat} and has no access.",
    NoticeId.STRANGERS: (
        "👤 {n} more {n|person|people} without access wrote to me recently. "
        "{c:pair} list shows the open requests."
    ),
    NoticeId.NOT_NOW: "Sorry, that didn't work just now. Please try again in a moment.",
    NoticeId.ADMINS_ONLY: "Only an admin can do that.",
    NoticeId.PLAIN_TEXT: "{text}",
    NoticeId.MESSAGE_TOO_OLD: (
        "Your message from {when} reached me only now, and it's too old to answer. Please send "
        "it again if it still matters."
    ),
    NoticeId.SESSION_RESTORED: (
        "♻️ I was restored from a backup. It does not contain the latest messages here from "
        "before {when} UTC, and I don't answer those, because I may have answered them "
        "already. Please send them again if they still matter."
    ),
    NoticeId.TOO_MANY_MESSAGES: (
        "⛔ That was more than {limit} {limit|message|messages} in a minute, so I did NOT take this one. Until you "
        "pause for a moment, I won't take more either. Please send them again then."
    ),
    NoticeId.BUDGET_USED_UP: (
        "⛔ Not answered: {cause}. Your message is saved; {c:retry} runs it then."
    ),
    NoticeId.BUDGET_TOO_SMALL_FOR_REQUEST: (
        "⛔ Not answered: {cause}. {c:new} starts a new, shorter conversation."
    ),
    NoticeId.BUDGET_ZERO: "⛔ Not answered: {cause}.",
    NoticeId.LATE_RESULT: "⏱ {tool} finished after I had stopped waiting for it: {result}",
    NoticeId.MODEL_FAILED: (
        "🛠 The model can't be used: {cause}. Conversations fail until this is fixed."
    ),
    NoticeId.MODEL_RECOVERED: (
        "✅ The model answers again. It could not be used for {min} {min|minute|minutes}: {cause}."
    ),
    NoticeId.SHARED_BUDGET_LOW: (
        "🛠 {percent} % of the daily limit of {limit} for {whose} is used: {used}. When it is "
        "used up, I send no more requests to the model there until the next day."
    ),
    NoticeId.SHARED_BUDGET_USED_UP: (
        "⛔ The daily limit of {limit} for {whose} is used up. For the next {left} I refuse "
        "messages there and tell their senders why. You can change the limit under [limits] in "
        "the configuration."
    ),
    NoticeId.PLATFORM_FAILED: (
        "🛠 {platform} has had a problem for {min} {min|minute|minutes}: {cause}."
    ),
    NoticeId.PLATFORM_RECOVERED: (
        "✅ {platform} works again. The problem lasted {min} {min|minute|minutes}: {cause}."
    ),
    NoticeId.DISK_LOW: (
        "🛠 The disk is nearly full: {left} left in {folder}. Please free some space. On a full "
        "disk I can't store anything, and messages wait until I can."
    ),
    NoticeId.DATABASE_DAMAGED_HERE: (
        "🛠 Sorry, I can't do that: the stored data of this conversation is damaged. The admins "
        "have been notified. {c:new} starts a new conversation."
    ),
    NoticeId.ANSWER_NOT_STORED: (
        "🛠 Sorry, I couldn't save my last answer, so I won't remember it. If the next message "
        "fails too, {c:new} starts a new conversation."
    ),
    NoticeId.DATABASE_DAMAGED: (
        "🛠 {cause}. Some conversations fail, the others keep working. Stop Holdfast, run "
        "“holdfast db check”, and restore a backup."
    ),
    NoticeId.TOOLS_CHANGED: (
        "🛠 The MCP server {server} has changed {n|a tool|tools}: {list}[+  and {more} more]. I'll "
        "ask an admin before the next call of {n|it|each of them}. If you allow a call, you accept "
        "the change."
    ),
    NoticeId.DISK_RECOVERED: (
        "✅ The disk has free space again: {left}. It was nearly full for {min} "
        "{min|minute|minutes}."
    ),
    NoticeId.SAFE_MODE: (
        "🛟 Safe mode: I crashed {n} times in a row soon after starting. I answer without "
        "tools, and interrupted tasks don't resume by themselves. Safe mode ends with "
        "{c:restart}, or at the next start once I have run well for 10 minutes."
    ),
    NoticeId.SAFE_MODE_OVER: "✅ Safe mode is over. Tools are available again.",
    NoticeId.RESTARTING: (
        "🔄 Restarting.[+  {n} {n|task is|tasks are} finishing first, for {s} s at most.]"
    ),
    NoticeId.RESTART_ALREADY: (
        "🔄 I'm already restarting, and I'll tell you when I'm back."
        "[+  {n} {n|task is|tasks are} still finishing.]"
    ),
    NoticeId.RESTART_REFUSED: "⛔ I did not restart, and nothing was interrupted: {cause}",
    NoticeId.RESTART_STOPPING: (
        "I'm being stopped, so I can't restart. The person who stopped me can start me again."
    ),
    NoticeId.RESTART_FRESH: (
        "I started only a moment ago. Send the command again to restart once more."
    ),
    NoticeId.RESTART_CANNOT: "This gateway runs in a terminal and cannot restart itself.",
    NoticeId.RESTARTED: (
        "✅ Back after {took}."
        "[+  {how}]"
        "[+  Version {after}, before: {before}.]"
        "[+  {n} {n|task was|tasks were} interrupted{resumed| and resumed|}.]"
        "[+ {list}]"
    ),
    NoticeId.ASK: (
        "🔐 May I use **{tool}**"
        "[+  for {person}]?"
        "[+  {attached}Long values are shortened; the attached file has the whole call.]"
        "[+ {change}]\n"
        "```json\n"
        "{arguments}\n"
        "```\n"
        "{c:approve} {code} or {c:deny} {code}"
        "[+ , within {min} {min|minute|minutes}]"
    ),
    NoticeId.ASK_ADMIN: (
        "🔐 May I use **{tool}**?"
        "[+  {attached}Long values are shortened; the attached file has the whole call.]"
        "[+ {change}]\n"
        "```json\n"
        "{arguments}\n"
        "```\n"
        "An admin has to answer"
        "[+  within {min} {min|minute|minutes}]: {c:approve} {code} or {c:deny} {code}"
    ),
    NoticeId.ASK_AGAIN: (
        "🔐 May I use **{tool}** again? The previous call may have taken effect."
        "[+  {attached}Long values are shortened; the attached file has the whole call.]"
        "[+ {change}]\n"
        "```json\n"
        "{arguments}\n"
        "```\n"
        "{c:approve} {code} or {c:deny} {code}"
        "[+ , within {min} {min|minute|minutes}]"
    ),
    NoticeId.ASK_ALLOWED: "🔐 May I use **{tool}**?\n```json\n{arguments}\n```\n✅ Allowed by {by}.",
    NoticeId.ASK_DENIED: (
        "🔐 May I use **{tool}**?\n```json\n{arguments}\n```\n🚫 Denied by {by}[+ : {reason}]."
    ),
    NoticeId.ASK_EXPIRED: (
        "🔐 May I use **{tool}**?\n"
        "```json\n"
        "{arguments}\n"
        "```\n"
        "⌛ No answer in time, so it does not run."
    ),
    NoticeId.ASK_OVER: (
        "🔐 May I use **{tool}**?\n"
        "```json\n"
        "{arguments}\n"
        "```\n"
        "⏹ The task has ended, so it does not run."
    ),
    NoticeId.QUESTION: (
        "❓ The MCP server **{tool}** asks:\n"
        "```text\n"
        "{question}\n"
        "```"
        "[+ {choices}]\n"
        "{c:approve} {code}[+  {words}] or {c:deny} {code}"
        "[+ , within {min} {min|minute|minutes}]"
    ),
    NoticeId.QUESTION_ANSWERED: (
        "❓ The MCP server **{tool}** asks:\n```text\n{question}\n```\n✅ Answered by {by}[+ : {answer}]"
    ),
    NoticeId.QUESTION_DECLINED: (
        "❓ The MCP server **{tool}** asks:\n```text\n{question}\n```\n🚫 Declined by {by}."
    ),
    NoticeId.QUESTION_OVER: (
        "❓ The MCP server **{tool}** asks:\n```text\n{question}\n```\n⌛ This question is closed."
    ),
    NoticeId.QUESTION_NEEDS_WORDS: (
        "Please add one of the possible answers, or your own words: {c:approve} {code} YOUR ANSWER"
    ),
    NoticeId.ASK_MAY: "✅ Allowed: {tool} runs once.",
    NoticeId.ASK_MAY_NOT: "🚫 Denied: {tool} does not run.",
    NoticeId.ASK_NOTED: (
        "📝 Saved. Your answer counts when the conversation continues; {c:resume} returns to it."
    ),
    NoticeId.FETCHING_FILES: "📎 {list}",
    NoticeId.FILES_NOT_FETCHED: "📎 Not received: {list}.",
    NoticeId.WAITING_FOR_ANSWER: "🔐 Waiting for an answer",
    NoticeId.ASK_SILENT: "",  # the message of the request shows the answer
    NoticeId.ASK_ANSWERED: "This question is already answered.",
    NoticeId.ASK_LATE: "This question is already closed.",
    NoticeId.ASK_NONE: "There's no open question here.",
    NoticeId.ASK_UNKNOWN: (
        "No open question has the code {code}. It may already be answered or closed."
    ),
    NoticeId.ASK_SEVERAL: (
        "Several questions are open:\n{list}\nPlease choose one: {c:approve} CODE or {c:deny} CODE"
    ),
    NoticeId.STOPPED_ALL: "⏹ {n} {n|task|tasks} stopped.",
    NoticeId.QUEUE_USAGE: "Use: {c:queue} your message",
    NoticeId.STEER_USAGE: "Use: {c:steer} your message",
    NoticeId.MODEL_LIST: (
        "{list}\n{c:model} NAME switches to another model, {c:model} default switches back."
    ),
    NoticeId.MODEL_SET: (
        "🤖 From your next message on, {model} answers here.{running| The current answer is not "
        "affected.|}{unchecked| The model service did not confirm that it has this model.|}"
    ),
    NoticeId.MODEL_UNKNOWN: (
        "I don't know a model “{name}”."
        "[+  Did you mean {nearest}?] Nothing was changed. {c:model} lists the available "
        "models."
    ),
    NoticeId.MODEL_SEVERAL: (
        "“{name}” could be any of these: {list}.\n"
        "Please type more of the name. Nothing was changed."
    ),
    NoticeId.REASONING_LEVEL: (
        "🧠 Reasoning here: {level}. {c:reasoning} LEVEL sets it ({levels}), {c:reasoning} "
        "default resets it."
    ),
    NoticeId.REASONING_SET: (
        "🧠 Reasoning here from your next message on: {level}.{running| The current answer is "
        "not affected.|}"
    ),
    NoticeId.REASONING_UNKNOWN: (
        "“{name}” is not a reasoning level."
        "[+  Did you mean {nearest}?] Nothing was changed. The levels are: {levels}."
    ),
    NoticeId.COMPACTED: (
        "🗜 The conversation is now {percent} % shorter: about {before} tokens became {after}. "
        "The model sees a summary of the older part."
    ),
    NoticeId.COMPACT_NOTHING: "There's nothing to shorten here.",
    NoticeId.COMPACT_FAILED: (
        "Sorry, I couldn't summarise the conversation: {cause}. Nothing was changed."
    ),
    NoticeId.COMPACT_MOVED: (
        "The conversation changed while I was summarising it, so I left it as it is. "
        "{c:compact} tries again."
    ),
    NoticeId.COMPACT_RUNNING: "I'm already summarising this conversation.",
    NoticeId.SIDE_ANSWER: "💬 {text}",
    NoticeId.BTW_FAILED: "💬 Sorry, I couldn't answer your side question: {cause}.",
    NoticeId.BTW_USAGE: "Use: {c:btw} your question",
    NoticeId.PROMPT_USAGE: "{missing} is missing. Use: {usage}",
    NoticeId.PROMPT_FAILED: (
        "💬 Sorry, the MCP server {server} did not give me this text: {cause}."
    ),
    NoticeId.MCP_LIST: "{list}",
    NoticeId.MCP_USAGE: "Use: {c:mcp} login NAME[+ , or {c:mcp} {accept} NAME]",
    NoticeId.MCP_UNKNOWN: "There's no MCP server “{name}” here.",
    NoticeId.MCP_NO_LOGIN: "{server} needs no login.",
    NoticeId.MCP_LOGIN_PRIVATE: "Please log in in a private chat with me: {c:mcp} login {server}",
    NoticeId.MCP_LOGIN_LINK: (
        "🔑 Log in at {server} on this page: <{address}>\n\nIf the last page cannot be opened, send "
        "me the address of that page. The link works for {min} minutes."
    ),
    NoticeId.MCP_LOGIN_CHECK: "Thanks, I'm finishing the login.",
    NoticeId.MCP_LOGIN_OTHER: (
        "This doesn't belong to an open login. {c:mcp} login NAME starts one."
    ),
    NoticeId.MCP_LOGGED_IN: (
        "🔑 Logged in at {server}. I can use its tools from your next message on."
    ),
    NoticeId.MCP_LOGIN_FAILED: "🔑 The login at {server} did not succeed: {cause}.",
    NoticeId.MCP_LOGIN_EXPIRED: (
        "🔑 The login link for {server} has expired. {c:mcp} login {server} sends another one."
    ),
    NoticeId.MCP_LOGIN_NEEDED: (
        "🔑 The MCP server {server} needs a login. {c:mcp} login {server} sends you the link."
    ),
    NoticeId.MCP_INSTRUCTIONS_CHANGED: (
        "🛠 The MCP server {server} has changed its instructions for the model. The model does not "
        "get them until an admin accepts them with {c:mcp} accept {server}.\n{change}"
    ),
    NoticeId.MCP_ACCEPTED: "✅ The model gets the instructions of {server} from now on.",
    NoticeId.MCP_NOTHING_TO_ACCEPT: "The instructions of {server} have not changed.",
    NoticeId.BTW_MANY: (
        "⛔ I'm already answering {limit} side questions here. Please ask again in a moment."
    ),
}

BUTTONS = {
    NoticeId.TURN_FAILED: (("Go on", ButtonAction.RESUME), ("Start over", ButtonAction.RETRY)),
    NoticeId.TURN_INTERRUPTED: (
        ("Continue", ButtonAction.RESUME),
        ("Start over", ButtonAction.RETRY),
    ),
}
"""Buttons below a notice: label, and the action that a press sends."""

_MAX_QUOTED_LENGTH = 80
_QUOTED_FIELDS = frozenset({"request", "title", "name", "person", "chat"})
"""Fields with short texts of people, which must not be drawn as links or styles."""

_CONDITION_FIELDS = frozenset({"operator_told", "too_long", "attached", "shown"})
"""Fields that only decide whether a part appears; they add no text."""

_OPTIONAL_PATTERN = re.compile(r"\[\+ (.*?)\]", re.DOTALL)
_COMMAND_PATTERN = re.compile(r"\{c:(\w+)\}")
_PLURAL_PATTERN = re.compile(r"\{(\w+)\|([^|}]*)\|([^}]*)\}")
_FIELD_PATTERN = re.compile(r"\{(\w+)\}")
_FIELD_NAME_PATTERN = re.compile(r"\{(\w+)[|}]")


def _split_fields(template: str) -> tuple[frozenset[str], frozenset[str]]:
    required = frozenset(_FIELD_NAME_PATTERN.findall(_OPTIONAL_PATTERN.sub("", template)))
    return required, frozenset(_FIELD_NAME_PATTERN.findall(template)) - required


NOTICE_FIELDS = {notice: _split_fields(template) for notice, template in CATALOGUE.items()}
"""Required and optional fields of every notice, as its text has them."""


def render_notice(notice: NoticeId, fields: NoticeFields, command_template: str) -> str:
    """Return the text of a notice; `command_template` is the platform's form, such as `/{word}`.

    Raises `TypeError` if the fields are not those of the notice.
    """
    check_fields(notice, fields)
    template = CATALOGUE[notice]
    text = _OPTIONAL_PATTERN.sub(
        lambda part: part[1] if _has_all_fields(part[1], fields) else "", template
    )
    text = _COMMAND_PATTERN.sub(lambda match: command_template.replace("{word}", match[1]), text)
    text = _PLURAL_PATTERN.sub(
        lambda match: match[2] if fields.get(match[1]) == 1 else match[3], text
    )
    # Fields go in last and in one pass, so that a value that looks like a placeholder stays as it is.
    return _FIELD_PATTERN.sub(lambda match: _field_text(match[1], fields), text)


def check_fields(notice: NoticeId, names: Iterable[str]) -> None:
    """Raise `TypeError` if a required field of the notice is missing or a field is unknown."""
    required, optional = NOTICE_FIELDS[notice]
    missing, unknown = required.difference(names), frozenset(names) - required - optional
    if missing or unknown:
        msg = f"{notice!r}: missing fields {sorted(missing)}, unknown fields {sorted(unknown)}"
        raise TypeError(msg)


def _has_all_fields(part: str, fields: NoticeFields) -> bool:
    return all(fields.get(name) for name in _FIELD_PATTERN.findall(part))


def _field_text(name: str, fields: NoticeFields) -> str:
    value = fields.get(name, "")
    if name in _CONDITION_FIELDS:
        return ""
    if name in _QUOTED_FIELDS:
        return escape_markdown(excerpt(str(value), _MAX_QUOTED_LENGTH))
    return str(value)


def safe_mode_text(crashes: int) -> str:
    """Return one line about safe mode for admins and logs."""
    return (
        f"Safe mode after {crashes} crashes in a row: no tools, and interrupted tasks do not "
        "resume by themselves. Restart the gateway to end it."
    )
