"""Sans-IO: every sentence of ours that a chat shows, in one place.

from sessions.values.notices import NoticeId
Tests and code name a notice by its id. `{c:stop}` becomes the form in which a person writes that
command where the notice is shown; a part in `[+ ...]` appears only when all its fields are there
and not empty or zero.
"""

import re
from collections.abc import Mapping

from sessions.values.notices import NoticeId

NoticeFields = Mapping[str, str | int]

CATALOGUE: dict[NoticeId, str] = {
    NoticeId.NO_OUTPUT: "⏳ {model}: no output for {n}s, reconnecting at {d}s",
    NoticeId.RECONNECTING: "↻ Connection to {provider} dropped, retrying ({k}/{max})",
    NoticeId.ANSWER_CONTINUES: "↻ Reply was cut off, continuing",
    NoticeId.TOOL_CALL_CUT: "⚠️ {tool} was cut off on the way and has NOT run. Asking for it in smaller parts; "
    "nothing to do for you.",
    NoticeId.MODEL_SWITCHED: "⇄ {a} is not responding, continuing with {b}",
    NoticeId.RATE_LIMITED: "⏱ {provider} rate limit, retrying in {n}s",
    NoticeId.TURN_FAILED: "❌ I could not finish: {cause} ({k} {k|try|tries}, {min} min).[+  Done so far: {list}.]"
    "[+  Kept for a day as a draft: {draft}.]"
    "[+  {too_long}{c:new} starts a fresh one.]"
    "[+  {operator_told}The operator has been told.]",
    NoticeId.REASONING_USED_UP: "⚠️ The model used its whole output budget on reasoning, twice. "
    "Try {c:reasoning} low or {c:model}.",
    NoticeId.DECLINED: "⚠️ The model declined: {text}",
    NoticeId.STOPPED: "⏹ Stopped. Your next message starts a fresh conversation; {c:resume} brings this one "
    "back.[+  {tool} was running and may have taken effect.]"
    "[+  {n} waiting {n|message is|messages are} kept with it.]",
    NoticeId.NOTHING_TO_STOP: "No active task to stop.",
    NoticeId.TURN_INTERRUPTED: "♻️ I was restarted while working on “{request}” ({min} min, {k} {k|step|steps} done)."
    "[+  {tool}({preview}) was running: I do not know whether it finished and have not run it "
    "again.] Your next message starts fresh; {c:resume} picks this one up.",
    NoticeId.COMPACTING: "🗜 Compacting the conversation",
    NoticeId.DRAFT_KEPT: "💾 Kept {n} {n|line|lines} of {path} as a draft, continuing from there",
    NoticeId.FRESH_SESSION: "🆕 Fresh conversation: the previous session was stopped or interrupted. "
    "{c:resume} brings it back.",
    NoticeId.QUEUED: "⏳ {n} waiting. Working on “{request}” for {min} min. {c:stop} ends it.",
    NoticeId.QUEUE_DONE: "",
    NoticeId.QUEUE_FULL: "⛔ {limit} messages are already waiting here. This one was NOT taken; "
    "please send it again later.",
    NoticeId.RESTARTING_SOON: "🔄 Restarting. Your message is kept and will be answered right after.",
    NoticeId.NEW_SESSION: "🆕 New conversation.[+  {n} waiting {n|message goes|messages go} into it.]",
    NoticeId.RESUMED: "↩️ Back in the earlier conversation[+  “{title}”]."
    "[+  {n} waiting {n|message is|messages are} answered now.]",
    NoticeId.NOTHING_TO_RESUME: "There is no earlier conversation to bring back. "
    "{c:sessions} lists what there is.",
    NoticeId.NOTHING_TO_RETRY: "There is no message to run again.",
    NoticeId.NOTHING_TO_UNDO: "There is nothing to take back.",
    NoticeId.UNDONE: "↩️ Taken back: “{request}” and its answer are out of the conversation.",
    NoticeId.BUSY: "An answer is still being written. {c:stop} ends it.",
    NoticeId.NOT_YOURS: "This belongs to the person who asked last, or to an admin.",
    NoticeId.EXPIRED_IDLE: "🆕 Fresh conversation: the previous one was quiet for long.",
    NoticeId.EXPIRED_DAILY: "🆕 Fresh conversation: a new one begins every day.",
    NoticeId.UNKNOWN_COMMAND: "{word} is not a command I know.[+  Did you mean {nearest}?] "
    "{c:help} lists all.",
    NoticeId.GREETING: "👋 Hello. Write to me, and I answer. {c:help} shows what else I can do.",
    NoticeId.CLAIMED: "🔑 You are the owner of this gateway now: an admin. {c:help} shows what you can do.",
    NoticeId.CLAIM_REFUSED: "This code does not open anything (any more). The operator gets a new one "
    "with “holdfast pair claim”.",
    NoticeId.PAIRING_CODE: "👋 I do not know you yet. Ask the owner of this gateway to let you in with "
    "this code: {code}",
    NoticeId.PAIRING_PENDING: "Your request is still open; the owner has to approve it.",
    NoticeId.PAIRED: "✅ You are let in. Write to me, and I answer.",
    NoticeId.PAIR_REQUEST: "👤 {name} ({principal}) asks to be let in. Approve: {c:pair} approve {code}",
    NoticeId.PAIR_APPROVED: "✅ Let in: {name} ({principal}).",
    NoticeId.PAIR_REVOKED: "🚫 {principal} is not let in any more.",
    NoticeId.PAIR_UNKNOWN: "No open request has this code. {c:pair} list shows them.",
    NoticeId.PAIR_LIST: "{list}",
    NoticeId.HELP: "{list}",
    NoticeId.SESSIONS: "{list}\n{c:resume} NUMBER brings one back.",
    NoticeId.PAIR_USAGE: "Say {c:pair} list, {c:pair} approve CODE or {c:pair} revoke ID.",
    NoticeId.REFUSED_MENTION: "👤 {name} ({principal}) mentioned me in {chat} and is not let in.",
    NoticeId.NOT_NOW: "This could not be done just now. Please try again in a moment.",
    NoticeId.ADMINS_ONLY: "Only an admin may do that.",
    NoticeId.PLAIN_TEXT: "{text}",
    NoticeId.MESSAGE_TOO_OLD: "Your message from {when} reached me only now; it was too old to be answered. "
    "Please send it again if it still matters.",
    NoticeId.SESSION_RESTORED: "♻️ I was restored from a backup. What was written here before {when} UTC and is not "
    "in it I do not answer, because I may have answered it before; please send again what still "
    "matters.",
    NoticeId.TOO_MANY_MESSAGES: "⛔ That was more than {limit} messages in a minute. This one was NOT taken; "
    "please send it again in a moment.",
    NoticeId.BUDGET_USED_UP: "⛔ Not answered: {cause}. Your message is kept: {c:retry} runs it then.",
    NoticeId.BUDGET_TOO_SMALL_FOR_REQUEST: "⛔ Not answered: {cause}. {c:new} begins a conversation that takes less.",
    NoticeId.BUDGET_ZERO: "⛔ Not answered: {cause}.",
    NoticeId.LATE_RESULT: "⏱ {tool} came to an end after it had been given up: {result}",
    NoticeId.MODEL_FAILED: "🛠 The model cannot be used: {cause}. Conversations fail until this is mended.",
    NoticeId.MODEL_RECOVERED: "✅ The model answers again. It could not be used for {min} "
    "{min|minute|minutes}: {cause}.",
    NoticeId.SHARED_BUDGET_LOW: "🛠 {percent} % of the limit of {limit} a day for {whose} is used: {used}. When it "
    "is used up, nothing more is asked of the model there until the next day begins.",
    NoticeId.SHARED_BUDGET_USED_UP: "⛔ The limit of {limit} a day for {whose} is used up. Until the next day begins, in "
    "{left}, messages there are refused, and their senders told. What may be spent is "
    "set in [limits].",
    NoticeId.PLATFORM_FAILED: "🛠 {platform} has been in trouble for {min} {min|minute|minutes}: {cause}.",
    NoticeId.PLATFORM_RECOVERED: "✅ {platform} works again. It was in trouble for {min} "
    "{min|minute|minutes}: {cause}.",
    NoticeId.DISK_LOW: "🛠 The disk is nearly full: {left} left in {folder}. Please make room: when it is full "
    "nothing can be stored, and messages wait until it can.",
    NoticeId.DATABASE_DAMAGED_HERE: "🛠 I cannot do that: what is kept of this conversation is damaged. The admins "
    "were told; {c:new} begins a conversation without it.",
    NoticeId.DATABASE_DAMAGED: "🛠 {cause}. Some conversations fail, the others go on. Stop Holdfast, look with "
    "“holdfast db check”, and restore a backup.",
    NoticeId.DISK_RECOVERED: "✅ There is room on the disk again: {left}. It was nearly full for {min} "
    "{min|minute|minutes}.",
    NoticeId.SAFE_MODE: "🛟 Safe mode: I crashed {n} times in a row soon after I was started. I answer, but "
    "without tools, and nothing that was interrupted goes on by itself. It ends by {c:restart}, or "
    "with the next start once I have run well for 10 minutes.",
    NoticeId.SAFE_MODE_OVER: "✅ Safe mode is over: tools are there again.",
    NoticeId.RESTARTING: "🔄 Restarting.[+  {n} {n|task is|tasks are} finishing first, for {s} s at most.]",
    NoticeId.RESTART_ALREADY: "🔄 Restarting already; I tell you when I am back."
    "[+  {n} {n|task is|tasks are} still finishing.]",
    NoticeId.RESTART_REFUSED: "⛔ Not restarted, and nothing was interrupted: {cause}",
    NoticeId.RESTART_STOPPING: "I am being stopped, so I cannot restart; who stopped me can start me again.",
    NoticeId.RESTART_FRESH: "I was started a moment ago. Say it again if I am to restart once more.",
    NoticeId.RESTART_CANNOT: "I live in a terminal here and cannot restart myself.",
    NoticeId.RESTARTED: "✅ Back after {took}.[+  {how}][+  Version {after} now, {before} before.]"
    "[+  {n} {n|task was|tasks were} interrupted{resumed| and taken up again|}.]"
    "[+ {list}]",
    NoticeId.ASK: "🔐 {tool} wants to run[+  for {person}]:\n```json\n{arguments}\n```\n"
    "{c:approve} {code} or {c:deny} {code}[+ , within {min} {min|minute|minutes}]",
    NoticeId.ASK_ADMIN: "🔐 {tool} wants to run:\n```json\n{arguments}\n```\n"
    "An admin has to answer[+  within {min} {min|minute|minutes}]: "
    "{c:approve} {code} or {c:deny} {code}",
    NoticeId.ASK_AGAIN: "🔐 {tool} wants to run once more; the time before it may have taken effect:\n"
    "```json\n{arguments}\n```\n"
    "{c:approve} {code} or {c:deny} {code}[+ , within {min} {min|minute|minutes}]",
    NoticeId.ASK_ALLOWED: "🔐 {tool} wanted to run:\n```json\n{arguments}\n```\n✅ Allowed by {by}.",
    NoticeId.ASK_DENIED: "🔐 {tool} wanted to run:\n```json\n{arguments}\n```\n"
    "🚫 Denied by {by}[+ : {reason}].",
    NoticeId.ASK_EXPIRED: "🔐 {tool} wanted to run:\n```json\n{arguments}\n```\n"
    "⌛ Nobody answered in time; it does not run.",
    NoticeId.ASK_OVER: "🔐 {tool} wanted to run:\n```json\n{arguments}\n```\n"
    "⏹ This is over: what it was for has ended; it does not run.",
    NoticeId.ASK_MAY: "✅ Allowed: {tool} runs once.",
    NoticeId.ASK_MAY_NOT: "🚫 Denied: {tool} does not run.",
    NoticeId.ASK_NOTED: "📝 Noted. It counts when the conversation goes on; {c:resume} brings it back.",
    NoticeId.FETCHING_FILES: "📎 {list}",
    NoticeId.FILES_NOT_FETCHED: "📎 Not received: {list}.",
    NoticeId.WAITING_FOR_ANSWER: "🔐 Waiting for an answer",
    NoticeId.ASK_SILENT: "",  # the question itself says it
    NoticeId.ASK_ANSWERED: "This was answered already.",
    NoticeId.ASK_LATE: "This is over; nothing waits for an answer to it.",
    NoticeId.ASK_NONE: "Nothing waits for an answer here.",
    NoticeId.ASK_UNKNOWN: "No open question has the code {code}; it may be answered, or over.",
    NoticeId.ASK_SEVERAL: "Several questions are open:\n{list}\n"
    "Say which: {c:approve} CODE or {c:deny} CODE.",
    NoticeId.STOPPED_ALL: "⏹ {n} {n|task|tasks} stopped.",
    NoticeId.QUEUE_USAGE: "Write the message behind it: {c:queue} and then your text.",
    NoticeId.STEER_USAGE: "Write the message behind it: {c:steer} and then your text.",
    NoticeId.MODEL_LIST: "{list}\n{c:model} NAME switches, {c:model} default goes back to what is configured.",
    NoticeId.MODEL_SET: "🤖 From the next message on {model} answers here."
    "{running| The answer that is being written goes on as it was.|}"
    "{unchecked| The service did not say whether it has this model.|}",
    NoticeId.MODEL_UNKNOWN: "I know of no model “{name}”.[+  Did you mean {nearest}?] "
    "Nothing was changed; {c:model} lists what there is.",
    NoticeId.MODEL_SEVERAL: "“{name}” may be any of these: {list}.\n"
    "Write more of the name; nothing was changed.",
    NoticeId.REASONING_LEVEL: "🧠 Reasoning here: {level}. {c:reasoning} LEVEL sets it ({levels}), "
    "{c:reasoning} default goes back to what is configured.",
    NoticeId.REASONING_SET: "🧠 From the next message on the reasoning here is: {level}."
    "{running| The answer that is being written goes on as it was.|}",
    NoticeId.REASONING_UNKNOWN: "“{name}” is not a level of reasoning.[+  Did you mean {nearest}?] "
    "Nothing was changed; the levels are: {levels}.",
    NoticeId.COMPACTED: "🗜 The conversation is {percent} % shorter now: about {before} tokens became "
    "{after}. In place of what was said before, the model sees a summary of it.",
    NoticeId.COMPACT_NOTHING: "There is nothing to shorten here.",
    NoticeId.COMPACT_FAILED: "The conversation could not be summarised: {cause}. Nothing was changed.",
    NoticeId.COMPACT_MOVED: "The conversation changed while it was being summarised, so I left it as it "
    "is. {c:compact} tries again.",
    NoticeId.COMPACT_RUNNING: "The conversation is being summarised already.",
    NoticeId.SIDE_ANSWER: "💬 {text}",
    NoticeId.BTW_FAILED: "💬 I could not answer your question on the side: {cause}.",
    NoticeId.BTW_USAGE: "Write the question behind it: {c:btw} and then your text.",
    NoticeId.BTW_MANY: "⛔ {limit} questions on the side are being answered here already. "
    "Please ask again in a moment.",
}

BUTTONS = {
    NoticeId.TURN_FAILED: (("Go on", "resume.go"), ("Start over", "retry")),
    NoticeId.TURN_INTERRUPTED: (("Continue", "resume.go"), ("Start over", "retry")),
}
"""What stands under a notice: label and the action that comes back when it is pressed."""

_CONDITION_FIELDS = frozenset({"operator_told", "too_long"})
"""Fields that say whether a part is shown, and no word in it."""

_OPTIONAL_PATTERN = re.compile(r"\[\+ (.*?)\]")
_COMMAND_PATTERN = re.compile(r"\{c:(\w+)\}")
_PLURAL_PATTERN = re.compile(r"\{(\w+)\|([^|}]*)\|([^}]*)\}")
_FIELD_PATTERN = re.compile(r"\{(\w+)\}")


def render_notice(notice: NoticeId, fields: NoticeFields, command_template: str) -> str:
    """Write a notice out; `command` is the platform's form, such as `/{word}`."""
    template = CATALOGUE[notice]
    text = _OPTIONAL_PATTERN.sub(
        lambda part: part[1] if _has_all_fields(part[1], fields) else "", template
    )
    text = _COMMAND_PATTERN.sub(lambda match: command_template.replace("{word}", match[1]), text)
    text = _PLURAL_PATTERN.sub(
        lambda match: match[2] if fields.get(match[1]) == 1 else match[3], text
    )
    # Fields go in last and in one pass, so that nothing inside them is taken for a placeholder.
    return _FIELD_PATTERN.sub(lambda match: _field_text(match[1], fields), text)


def _has_all_fields(part: str, fields: NoticeFields) -> bool:
    return all(fields.get(name) for name in _FIELD_PATTERN.findall(part))


def _field_text(name: str, fields: NoticeFields) -> str:
    value = fields.get(name, "")
    if name in _CONDITION_FIELDS:
        return ""
    if name == "request":
        return _excerpt(str(value))
    return str(value)


def _excerpt(text: str, max_length: int = 80) -> str:
    """Quote a request in a notice: one line, not too long."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else line[: max_length - 1].rstrip() + "…"


def safe_mode_text(crashes: int) -> str:
    """Say in one line that a start is careful, and what ends that."""
    return (
        f"Safe mode after {crashes} crashes in a row: no tools, nothing interrupted goes on by "
        "itself; a restart by hand ends it."
    )
