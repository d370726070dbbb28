"""Sans-IO: every sentence of ours that a chat shows, in one place.

Tests and code name a notice by its id. `{c:stop}` becomes the form in which a person writes that
command where the notice is shown; a part in `[+ ...]` appears only when all its fields are there
and not empty or zero.
"""

import re
from collections.abc import Mapping

NoticeFields = Mapping[str, str | int]

CATALOGUE = {
    "N1": "⏳ {model}: no output for {n}s, reconnecting at {d}s",
    "N2": "↻ Connection to {provider} dropped, retrying ({k}/{max})",
    "N3": "↻ Reply was cut off, continuing",
    "N4": "⚠️ {tool} was cut off on the way and has NOT run. Asking for it in smaller parts; "
    "nothing to do for you.",
    "N5": "⇄ {a} is not responding, continuing with {b}",
    "N6": "⏱ {provider} rate limit, retrying in {n}s",
    "N7": "❌ I could not finish: {cause} ({k} {k|try|tries}, {min} min).[+  Done so far: {list}.]"
    "[+  Kept for a day as a draft: {draft}.]"
    "[+  {too_long}{c:new} starts a fresh one.]"
    "[+  {operator_told}The operator has been told.]",
    "N8": "⚠️ The model used its whole output budget on reasoning, twice. "
    "Try {c:reasoning} low or {c:model}.",
    "N9": "⚠️ The model declined: {text}",
    "N10": "⏹ Stopped. Your next message starts a fresh conversation; {c:resume} brings this one "
    "back.[+  {tool} was running and may have taken effect.]"
    "[+  {n} waiting {n|message is|messages are} kept with it.]",
    "N10.idle": "No active task to stop.",
    "N11": "♻️ I was restarted while working on “{request}” ({min} min, {k} {k|step|steps} done)."
    "[+  {tool}({preview}) was running: I do not know whether it finished and have not run it "
    "again.] Your next message starts fresh; {c:resume} picks this one up.",
    "N12": "🗜 Compacting the conversation",
    "N13": "💾 Kept {n} {n|line|lines} of {path} as a draft, continuing from there",
    "N14": "🆕 Fresh conversation: the previous session was stopped or interrupted. "
    "{c:resume} brings it back.",
    "N15": "⏳ {n} waiting. Working on “{request}” for {min} min. {c:stop} ends it.",
    "N15.gone": "",
    "N16": "⛔ {limit} messages are already waiting here. This one was NOT taken; "
    "please send it again later.",
    "N17": "🔄 Restarting. Your message is kept and will be answered right after.",
    "new": "🆕 New conversation.[+  {n} waiting {n|message goes|messages go} into it.]",
    "resumed": "↩️ Back in the earlier conversation[+  “{title}”]."
    "[+  {n} waiting {n|message is|messages are} answered now.]",
    "nothing_to_resume": "There is no earlier conversation to bring back. "
    "{c:sessions} lists what there is.",
    "nothing_to_retry": "There is no message to run again.",
    "nothing_to_undo": "There is nothing to take back.",
    "undone": "↩️ Taken back: “{request}” and its answer are out of the conversation.",
    "busy": "An answer is still being written. {c:stop} ends it.",
    "not_yours": "This belongs to the person who asked last, or to an admin.",
    "expired.idle": "🆕 Fresh conversation: the previous one was quiet for long.",
    "expired.daily": "🆕 Fresh conversation: a new one begins every day.",
    "unknown_command": "{word} is not a command I know.[+  Did you mean {nearest}?] "
    "{c:help} lists all.",
    "start": "👋 Hello. Write to me, and I answer. {c:help} shows what else I can do.",
    "claimed": "🔑 You are the owner of this gateway now: an admin. {c:help} shows what you can do.",
    "claim_refused": "This code does not open anything (any more). The operator gets a new one "
    "with “holdfast pair claim”.",
    "pairing_code": "👋 I do not know you yet. Ask the owner of this gateway to let you in with "
    "this code: {code}",
    "pairing_pending": "Your request is still open; the owner has to approve it.",
    "paired": "✅ You are let in. Write to me, and I answer.",
    "pair_request": "👤 {name} ({principal}) asks to be let in. Approve: {c:pair} approve {code}",
    "pair_approved": "✅ Let in: {name} ({principal}).",
    "pair_revoked": "🚫 {principal} is not let in any more.",
    "pair_unknown": "No open request has this code. {c:pair} list shows them.",
    "pair_list": "{list}",
    "help": "{list}",
    "sessions": "{list}\n{c:resume} NUMBER brings one back.",
    "pair_usage": "Say {c:pair} list, {c:pair} approve CODE or {c:pair} revoke ID.",
    "refused_mention": "👤 {name} ({principal}) mentioned me in {chat} and is not let in.",
    "not_now": "This could not be done just now. Please try again in a moment.",
    "admins_only": "Only an admin may do that.",
    "text": "{text}",
    "stale": "Your message from {when} reached me only now; it was too old to be answered. "
    "Please send it again if it still matters.",
    "restored": "♻️ I was restored from a backup. What was written here before {when} UTC and is not "
    "in it I do not answer, because I may have answered it before; please send again what still "
    "matters.",
    "too_many": "⛔ That was more than {limit} messages in a minute. This one was NOT taken; "
    "please send it again in a moment.",
    "budget": "⛔ Not answered: {cause}. Your message is kept: {c:retry} runs it then.",
    "budget.large": "⛔ Not answered: {cause}. {c:new} begins a conversation that takes less.",
    "budget.never": "⛔ Not answered: {cause}.",
    "late": "⏱ {tool} came to an end after it had been given up: {result}",
    "operator": "🛠 The model cannot be used: {cause}. Conversations fail until this is mended.",
    "operator.over": "✅ The model answers again. It could not be used for {min} "
    "{min|minute|minutes}: {cause}.",
    "budget.near": "🛠 {percent} % of the limit of {limit} a day for {whose} is used: {used}. When it "
    "is used up, nothing more is asked of the model there until the next day begins.",
    "budget.over": "⛔ The limit of {limit} a day for {whose} is used up. Until the next day begins, in "
    "{left}, messages there are refused, and their senders told. What may be spent is "
    "set in [limits].",
    "platform": "🛠 {platform} has been in trouble for {min} {min|minute|minutes}: {cause}.",
    "platform.over": "✅ {platform} works again. It was in trouble for {min} "
    "{min|minute|minutes}: {cause}.",
    "disk": "🛠 The disk is nearly full: {left} left in {folder}. Please make room: when it is full "
    "nothing can be stored, and messages wait until it can.",
    "damaged.here": "🛠 I cannot do that: what is kept of this conversation is damaged. The admins "
    "were told; {c:new} begins a conversation without it.",
    "damaged": "🛠 {cause}. Some conversations fail, the others go on. Stop Holdfast, look with "
    "“holdfast db check”, and restore a backup.",
    "disk.over": "✅ There is room on the disk again: {left}. It was nearly full for {min} "
    "{min|minute|minutes}.",
    "safe_mode": "🛟 Safe mode: I crashed {n} times in a row soon after I was started. I answer, but "
    "without tools, and nothing that was interrupted goes on by itself. It ends by {c:restart}, or "
    "with the next start once I have run well for 10 minutes.",
    "safe_mode.over": "✅ Safe mode is over: tools are there again.",
    "restarting": "🔄 Restarting.[+  {n} {n|task is|tasks are} finishing first, for {s} s at most.]",
    "restart_already": "🔄 Restarting already; I tell you when I am back."
    "[+  {n} {n|task is|tasks are} still finishing.]",
    "restart_refused": "⛔ Not restarted, and nothing was interrupted: {cause}",
    "restart_stopping": "I am being stopped, so I cannot restart; who stopped me can start me again.",
    "restart_fresh": "I was started a moment ago. Say it again if I am to restart once more.",
    "restart_cannot": "I live in a terminal here and cannot restart myself.",
    "restarted": "✅ Back after {took}.[+  {how}][+  Version {after} now, {before} before.]"
    "[+  {n} {n|task was|tasks were} interrupted{resumed| and taken up again|}.]"
    "[+ {list}]",
    "ask": "🔐 {tool} wants to run[+  for {person}]:\n```json\n{arguments}\n```\n"
    "{c:approve} {code} or {c:deny} {code}[+ , within {min} {min|minute|minutes}]",
    "ask.admin": "🔐 {tool} wants to run:\n```json\n{arguments}\n```\n"
    "An admin has to answer[+  within {min} {min|minute|minutes}]: "
    "{c:approve} {code} or {c:deny} {code}",
    "ask.again": "🔐 {tool} wants to run once more; the time before it may have taken effect:\n"
    "```json\n{arguments}\n```\n"
    "{c:approve} {code} or {c:deny} {code}[+ , within {min} {min|minute|minutes}]",
    "ask.allowed": "🔐 {tool} wanted to run:\n```json\n{arguments}\n```\n✅ Allowed by {by}.",
    "ask.denied": "🔐 {tool} wanted to run:\n```json\n{arguments}\n```\n"
    "🚫 Denied by {by}[+ : {reason}].",
    "ask.expired": "🔐 {tool} wanted to run:\n```json\n{arguments}\n```\n"
    "⌛ Nobody answered in time; it does not run.",
    "ask.over": "🔐 {tool} wanted to run:\n```json\n{arguments}\n```\n"
    "⏹ This is over: what it was for has ended; it does not run.",
    "ask.may": "✅ Allowed: {tool} runs once.",
    "ask.may_not": "🚫 Denied: {tool} does not run.",
    "ask.noted": "📝 Noted. It counts when the conversation goes on; {c:resume} brings it back.",
    "fetching": "📎 {list}",
    "not_fetched": "📎 Not received: {list}.",
    "waiting": "🔐 Waiting for an answer",
    "ask.silent": "",  # the question itself says it
    "ask.answered": "This was answered already.",
    "ask.late": "This is over; nothing waits for an answer to it.",
    "ask.none": "Nothing waits for an answer here.",
    "ask.unknown": "No open question has the code {code}; it may be answered, or over.",
    "ask.several": "Several questions are open:\n{list}\n"
    "Say which: {c:approve} CODE or {c:deny} CODE.",
    "stopped_all": "⏹ {n} {n|task|tasks} stopped.",
    "queue_usage": "Write the message behind it: {c:queue} and then your text.",
    "steer_usage": "Write the message behind it: {c:steer} and then your text.",
    "model": "{list}\n{c:model} NAME switches, {c:model} default goes back to what is configured.",
    "model_set": "🤖 From the next message on {model} answers here."
    "{running| The answer that is being written goes on as it was.|}"
    "{unchecked| The service did not say whether it has this model.|}",
    "model_unknown": "I know of no model “{name}”.[+  Did you mean {nearest}?] "
    "Nothing was changed; {c:model} lists what there is.",
    "model_several": "“{name}” may be any of these: {list}.\n"
    "Write more of the name; nothing was changed.",
    "reasoning": "🧠 Reasoning here: {level}. {c:reasoning} LEVEL sets it ({levels}), "
    "{c:reasoning} default goes back to what is configured.",
    "reasoning_set": "🧠 From the next message on the reasoning here is: {level}."
    "{running| The answer that is being written goes on as it was.|}",
    "reasoning_unknown": "“{name}” is not a level of reasoning.[+  Did you mean {nearest}?] "
    "Nothing was changed; the levels are: {levels}.",
    "compacted": "🗜 The conversation is {percent} % shorter now: about {before} tokens became "
    "{after}. In place of what was said before, the model sees a summary of it.",
    "compact_nothing": "There is nothing to shorten here.",
    "compact_failed": "The conversation could not be summarised: {cause}. Nothing was changed.",
    "compact_moved": "The conversation changed while it was being summarised, so I left it as it "
    "is. {c:compact} tries again.",
    "compact_running": "The conversation is being summarised already.",
    "btw": "💬 {text}",
    "btw_failed": "💬 I could not answer your question on the side: {cause}.",
    "btw_usage": "Write the question behind it: {c:btw} and then your text.",
    "btw_many": "⛔ {limit} questions on the side are being answered here already. "
    "Please ask again in a moment.",
}

BUTTONS = {
    "N7": (("Go on", "resume.go"), ("Start over", "retry")),
    "N11": (("Continue", "resume.go"), ("Start over", "retry")),
}
"""What stands under a notice: label and the action that comes back when it is pressed."""

_CONDITION_FIELDS = frozenset({"operator_told", "too_long"})
"""Fields that say whether a part is shown, and no word in it."""

_OPTIONAL_PATTERN = re.compile(r"\[\+ (.*?)\]")
_COMMAND_PATTERN = re.compile(r"\{c:(\w+)\}")
_PLURAL_PATTERN = re.compile(r"\{(\w+)\|([^|}]*)\|([^}]*)\}")
_FIELD_PATTERN = re.compile(r"\{(\w+)\}")


def render_notice(notice: str, fields: NoticeFields, command_template: str) -> str:
    """Write a notice out; `command` is the platform's form, such as `/{word}`."""
    template = CATALOGUE[f"{notice}.{fields['reason']}" if notice == "expired" else notice]
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
