"""Commands about what goes on beside the conversation: models, costs, questions of tools."""

from gateway.commands.contract import Call, Command, Outcome


async def _model(call: Call) -> Outcome:
    return await call.desk.asides.model(call)


async def _reasoning(call: Call) -> Outcome:
    return await call.desk.asides.reasoning(call)


async def _usage(call: Call) -> Outcome:
    return await call.desk.asides.usage(call)


async def _compact(call: Call) -> Outcome:
    return await call.desk.asides.compact(call)


async def _btw(call: Call) -> Outcome:
    return await call.desk.asides.btw(call)


async def _approve(call: Call) -> Outcome:
    return await call.desk.questions.answer(call, allow=True)


async def _deny(call: Call) -> Outcome:
    return await call.desk.questions.answer(call, allow=False)


COMMANDS = (
    Command("model", "show or switch the model", _model, args="[NAME]"),
    Command("reasoning", "how long the model may think", _reasoning, args="[LEVEL]"),
    Command("usage", "tokens and cost", _usage),
    Command("compact", "summarise the conversation so far", _compact),
    Command("btw", "ask something on the side", _btw, args="TEXT"),
    Command("approve", "let a tool do what it asks for", _approve, args="[CODE]"),
    Command("deny", "do not let it", _deny, args="[CODE] [REASON]"),
)
