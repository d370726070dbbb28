"""The floor: the least a program can do that does the same job with the same libraries.

It receives by python-telegram-bot's own polling, streams the answer with the openai SDK, shows that
it is typing, and sends the answer once. The conversation is kept in a dictionary and nothing is
stored: what dies with it is lost. It is written as one writes such a program without thinking much
about speed; only the pools are large enough for many chats at once.
"""

import sys

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from telegram import Update
from telegram.ext import Application, ApplicationBuilder, ContextTypes, MessageHandler, filters

_AT_ONCE = 512
_PATIENCE = 60.0

Context = ContextTypes.DEFAULT_TYPE


class Floor:
    """A bot without a memory of its own."""

    def __init__(self, model: AsyncOpenAI) -> None:
        self._model = model
        self._said: dict[int, list[ChatCompletionMessageParam]] = {}

    async def answer(self, update: Update, context: Context) -> None:
        """Answer a message."""
        message = update.message
        assert message
        said = self._said.setdefault(message.chat_id, [])
        said.append({"role": "user", "content": message.text or ""})
        await context.bot.send_chat_action(message.chat_id, "typing")
        parts: list[str] = []
        stream = await self._model.chat.completions.create(
            model="bench", messages=said, stream=True
        )
        async for chunk in stream:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                parts.append(text)  # noqa: PERF401 - as people write it
        answer = "".join(parts)
        said.append({"role": "assistant", "content": answer})
        await context.bot.send_message(message.chat_id, answer)


def build(telegram: str, token: str, model: str) -> "Application":  # type: ignore[type-arg]  # six unused ones
    """Put it together."""
    floor = Floor(AsyncOpenAI(api_key="none", base_url=model))
    application = (
        ApplicationBuilder()
        .token(token)
        .base_url(f"{telegram}/bot")
        .concurrent_updates(True)  # noqa: FBT003 - the library wants it so
        .connection_pool_size(_AT_ONCE)
        .pool_timeout(_PATIENCE)
        .read_timeout(_PATIENCE)
        .build()
    )
    application.add_handler(MessageHandler(filters.TEXT, floor.answer))
    return application


def main() -> None:
    """Run until told to stop."""
    telegram, token, model = sys.argv[1:]
    build(telegram, token, model).run_polling(
        poll_interval=0, timeout=25, allowed_updates=["message"]
    )


if __name__ == "__main__":
    main()
