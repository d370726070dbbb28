"""Sans-IO: the text of every notice, by id.

`{c:stop}` becomes the command in the form of the platform that shows the notice. A part in
`[+ ...]` appears only if none of its fields is missing, empty or zero. `{n|message|messages}`
chooses the first text if the field is 1, else the second.
"""

import re
from collections.abc import Mapping

NoticeFields = Mapping[str, str | int]

CATALOGUE = {
    "N1": "⏳ {model}: no output for {n}s, reconnecting at {d}s",
    "N2": "↻ Connection to {provider} dropped, reconnecting",
    "N3": "↻ Reply was cut off, continuing",
    "N4": "⚠️ {tool} was cut off and has NOT run. I'm asking for it in smaller parts; "
    "you don't need to do anything.",
    "N5": "⇄ {a} is not responding, continuing with {b}",
    "N6": "⏱ {provider} rate limit, retrying in {n}s",
    "N7": "❌ Sorry, I couldn't finish this: {cause}.[+  Done so far: {list}.]"
    "[+  Kept for a day as a draft: {draft}.]"
    "[+  {too_long}{c:new} starts a new conversation.]"
    "[+  {operator_told}The administrator has been notified.]",
    "N8": "⚠️ The model spent its whole output on reasoning, twice. "
    "Try {c:reasoning} low, or another model with {c:model}.",
    "N9": "⚠️ The model declined: {text}",
    "N10": "⏹ Stopped. Your next message starts a new conversation; {c:resume} returns to this one."
    "[+  {tool} was running and may have taken effect.]"
    "[+  {n} queued {n|message is|messages are} kept with it.]",
    "N10.idle": "No active task to stop.",
    "N11": "♻️ I was restarted while working on “{request}”[+  (for {min} min)]."
    "[+  {tool}({preview}) was running: I don't know whether it finished, and I have not run it "
    "again.] Your next message starts a new conversation; {c:resume} continues this one.",
    "N12": "🗜 Compacting the conversation",
    "N13": "💾 Kept {n} {n|line|lines} of {path} as a draft, continuing from there",
    "N14": "🆕 New conversation: the previous one was stopped or interrupted. "
    "{c:resume} returns to it.",
    "N15": "⏳ Working on “{request}”[+  for {min} min]. "
    "{n} {n|message is|messages are} queued. {c:stop} stops the task.",
    "N15.gone": "",
    "N16": "⛔ {limit} messages are already queued here, so I did NOT take this one. "
    "Please send it again later.",
    "N17": "🔄 I'm restarting. Your message is saved, and I'll answer it right after.",
    "new": "🆕 New conversation.[+  {n} queued {n|message goes|messages go} into it.]",
    "resumed": "↩️ Back in the earlier conversation[+  “{title}”]."
    "[+  I'm answering {n} queued {n|message|messages} now.]",
    "nothing_to_resume": "There's no earlier conversation to return to. "
    "{c:sessions} shows the list.",
    "nothing_to_retry": "There's no message to run again.",
    "nothing_to_undo": "There's nothing to undo.",
    "undone": "↩️ Undone: I removed “{request}” and its answer from the conversation.",
    "busy": "I'm still writing an answer. {c:stop} stops it.",
    "not_yours": "Only the person who asked last, or an admin, can do that.",
    "expired.idle": "🆕 New conversation, because the previous one was quiet for a long time.",
    "expired.daily": "🆕 New conversation, because a new one starts every day.",
    "unknown_command": "I don't know {word}.[+  Did you mean {nearest}?] "
    "{c:help} lists all commands.",
    "start": "👋 Hello! Just write to me, and I'll answer. {c:help} shows what else I can do.",
    "claimed": "🔑 You are now the owner of this gateway, with admin rights. "
    "{c:help} shows what you can do.",
    "claim_refused": "This code is not valid (any more). The operator can create a new one "
    "with “holdfast pair claim”.",
    "pairing_code": "👋 Hello! I don't know you yet. Please ask the owner to give you access "
    "with this code: {code}",
    "pairing_pending": "Your request is still open. The owner has to approve it.",
    "paired": "✅ You now have access. Write to me, and I'll answer.",
    "pair_request": "👤 {name} ({principal}) asks for access. Approve: {c:pair} approve {code}",
    "pair_approved": "✅ {name} ({principal}) now has access.",
    "pair_revoked": "🚫 {principal} no longer has access.",
    "pair_unknown": "No open request has this code. {c:pair} list shows them.",
    "pair_list": "{list}",
    "help": "{list}",
    "sessions": "{list}\n{c:resume} NUMBER returns to one of them.",
    "pair_usage": "Use: {c:pair} list, {c:pair} approve CODE or {c:pair} revoke ID",
    "refused_mention": "👤 {name} ({principal}) mentioned me in {chat} and has no access.",
    "not_now": "Sorry, that didn't work just now. Please try again in a moment.",
    "admins_only": "Only an admin can do that.",
    "text": "{text}",
    "stale": "Your message from {when} reached me only now, and it's too old to answer. "
    "Please send it again if it still matters.",
    "restored": "♻️ I was restored from a backup. It does not contain the latest messages here from "
    "before {when} UTC, and I don't answer those, because I may have answered them already. "
    "Please send them again if they still matter.",
    "too_many": "⛔ That was more than {limit} messages in a minute, so I did NOT take this one. "
    "Please send it again in a moment.",
    "budget": "⛔ Not answered: {cause}. Your message is saved; {c:retry} runs it then.",
    "budget.large": "⛔ Not answered: {cause}. {c:new} starts a conversation that needs less.",
    "budget.never": "⛔ Not answered: {cause}.",
    "late": "⏱ {tool} finished after I had stopped waiting for it: {result}",
    "operator": "🛠 The model can't be used: {cause}. Conversations fail until this is fixed.",
    "operator.over": "✅ The model answers again. It could not be used for {min} "
    "{min|minute|minutes}: {cause}.",
    "budget.near": "🛠 {percent} % of the daily limit of {limit} for {whose} is used: {used}. When "
    "it is used up, I send no more requests to the model there until the next day.",
    "budget.over": "⛔ The daily limit of {limit} for {whose} is used up. For the next {left} I "
    "refuse messages there and tell their senders why. You can change the limit under [limits] in "
    "the configuration.",
    "platform": "🛠 {platform} has had a problem for {min} {min|minute|minutes}: {cause}.",
    "platform.over": "✅ {platform} works again. The problem lasted {min} "
    "{min|minute|minutes}: {cause}.",
    "disk": "🛠 The disk is nearly full: {left} left in {folder}. Please free some space. On a full "
    "disk I can't store anything, and messages wait until I can.",
    "damaged.here": "🛠 Sorry, I can't do that: the stored data of this conversation is damaged. "
    "The admins have been notified. {c:new} starts a new conversation.",
    "damaged": "🛠 {cause}. Some conversations fail, the others keep working. Stop Holdfast, run "
    "“holdfast db check”, and restore a backup.",
    "disk.over": "✅ The disk has free space again: {left}. It was nearly full for {min} "
    "{min|minute|minutes}.",
    "safe_mode": "🛟 Safe mode: I crashed {n} times in a row soon after starting. I answer without "
    "tools, and interrupted tasks don't resume by themselves. Safe mode ends with {c:restart}, or "
    "at the next start once I have run well for 10 minutes.",
    "safe_mode.over": "✅ Safe mode is over. Tools are available again.",
    "restarting": "🔄 Restarting.[+  {n} {n|task is|tasks are} finishing first, for {s} s at most.]",
    "restart_already": "🔄 I'm already restarting, and I'll tell you when I'm back."
    "[+  {n} {n|task is|tasks are} still finishing.]",
    "restart_refused": "⛔ I did not restart, and nothing was interrupted: {cause}",
    "restart_stopping": "I'm being stopped, so I can't restart. "
    "The person who stopped me can start me again.",
    "restart_fresh": "I started only a moment ago. Send the command again to restart once more.",
    "restart_cannot": "This gateway runs in a terminal and cannot restart itself.",
    "restarted": "✅ Back after {took}.[+  {how}][+  Version {after}, before: {before}.]"
    "[+  {n} {n|task was|tasks were} interrupted{resumed| and resumed|}.]"
    "[+ {list}]",
    "ask": "🔐 May I use **{tool}**[+  for {person}]?\n```json\n{arguments}\n```\n"
    "{c:approve} {code} or {c:deny} {code}[+ , within {min} {min|minute|minutes}]",
    "ask.admin": "🔐 May I use **{tool}**?\n```json\n{arguments}\n```\n"
    "An admin has to answer[+  within {min} {min|minute|minutes}]: "
    "{c:approve} {code} or {c:deny} {code}",
    "ask.again": "🔐 May I use **{tool}** again? The previous call may have taken effect.\n"
    "```json\n{arguments}\n```\n"
    "{c:approve} {code} or {c:deny} {code}[+ , within {min} {min|minute|minutes}]",
    "ask.allowed": "🔐 May I use **{tool}**?\n```json\n{arguments}\n```\n✅ Allowed by {by}.",
    "ask.denied": "🔐 May I use **{tool}**?\n```json\n{arguments}\n```\n"
    "🚫 Denied by {by}[+ : {reason}].",
    "ask.expired": "🔐 May I use **{tool}**?\n```json\n{arguments}\n```\n"
    "⌛ No answer in time, so it does not run.",
    "ask.over": "🔐 May I use **{tool}**?\n```json\n{arguments}\n```\n"
    "⏹ The task has ended, so it does not run.",
    "ask.may": "✅ Allowed: {tool} runs once.",
    "ask.may_not": "🚫 Denied: {tool} does not run.",
    "ask.noted": "📝 Saved. Your answer counts when the conversation continues; "
    "{c:resume} returns to it.",
    "fetching": "📎 {list}",
    "not_fetched": "📎 Not received: {list}.",
    "waiting": "🔐 Waiting for an answer",
    "ask.silent": "",  # the message of the request shows the answer
    "ask.answered": "This question is already answered.",
    "ask.late": "This question is already closed.",
    "ask.none": "There's no open question here.",
    "ask.unknown": "No open question has the code {code}. It may already be answered or closed.",
    "ask.several": "Several questions are open:\n{list}\n"
    "Please choose one: {c:approve} CODE or {c:deny} CODE",
    "stopped_all": "⏹ {n} {n|task|tasks} stopped.",
    "queue_usage": "Use: {c:queue} your message",
    "steer_usage": "Use: {c:steer} your message",
    "model": "{list}\n{c:model} NAME switches to another model, {c:model} default switches back.",
    "model_set": "🤖 From your next message on, {model} answers here."
    "{running| The current answer is not affected.|}"
    "{unchecked| The model service did not confirm that it has this model.|}",
    "model_unknown": "I don't know a model “{name}”.[+  Did you mean {nearest}?] "
    "Nothing was changed. {c:model} lists the available models.",
    "model_several": "“{name}” could be any of these: {list}.\n"
    "Please type more of the name. Nothing was changed.",
    "reasoning": "🧠 Reasoning here: {level}. {c:reasoning} LEVEL sets it ({levels}), "
    "{c:reasoning} default resets it.",
    "reasoning_set": "🧠 Reasoning here from your next message on: {level}."
    "{running| The current answer is not affected.|}",
    "reasoning_unknown": "“{name}” is not a reasoning level.[+  Did you mean {nearest}?] "
    "Nothing was changed. The levels are: {levels}.",
    "compacted": "🗜 The conversation is now {percent} % shorter: about {before} tokens became "
    "{after}. The model sees a summary of the older part.",
    "compact_nothing": "There's nothing to shorten here.",
    "compact_failed": "Sorry, I couldn't summarise the conversation: {cause}. Nothing was changed.",
    "compact_moved": "The conversation changed while I was summarising it, so I left it as it is. "
    "{c:compact} tries again.",
    "compact_running": "I'm already summarising this conversation.",
    "btw": "💬 {text}",
    "btw_failed": "💬 Sorry, I couldn't answer your side question: {cause}.",
    "btw_usage": "Use: {c:btw} your question",
    "btw_many": "⛔ I'm already answering {limit} side questions here. "
    "Please ask again in a moment.",
}

BUTTONS = {
    "N7": (("Go on", "resume.go"), ("Start over", "retry")),
    "N11": (("Continue", "resume.go"), ("Start over", "retry")),
}
"""Buttons below a notice: label, and the action that a press sends."""

_CONDITION_FIELDS = frozenset({"operator_told", "too_long"})
"""Fields that only decide whether a part appears; they add no text."""

_OPTIONAL_PATTERN = re.compile(r"\[\+ (.*?)\]")
_COMMAND_PATTERN = re.compile(r"\{c:(\w+)\}")
_PLURAL_PATTERN = re.compile(r"\{(\w+)\|([^|}]*)\|([^}]*)\}")
_FIELD_PATTERN = re.compile(r"\{(\w+)\}")


def render_notice(notice: str, fields: NoticeFields, command_template: str) -> str:
    """Return the text of a notice; `command_template` is the platform's form, such as `/{word}`."""
    template = CATALOGUE[f"{notice}.{fields['reason']}" if notice == "expired" else notice]
    text = _OPTIONAL_PATTERN.sub(
        lambda part: part[1] if _has_all_fields(part[1], fields) else "", template
    )
    text = _COMMAND_PATTERN.sub(lambda match: command_template.replace("{word}", match[1]), text)
    text = _PLURAL_PATTERN.sub(
        lambda match: match[2] if fields.get(match[1]) == 1 else match[3], text
    )
    # Fields go in last and in one pass, so that a value that looks like a placeholder stays as it is.
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
    """Shorten a request to one line for a quote."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else line[: max_length - 1].rstrip() + "…"


def safe_mode_text(crashes: int) -> str:
    """Return one line about safe mode for admins and logs."""
    return (
        f"Safe mode after {crashes} crashes in a row: no tools, and interrupted tasks do not "
        "resume by themselves. Restart the gateway to end it."
    )
