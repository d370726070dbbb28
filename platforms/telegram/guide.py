"""Sans-IO: setup guide for getting a Telegram bot token."""

from platforms.core.guide import SetupGuide, TokenGuide

GUIDE = SetupGuide(
    tokens=(
        TokenGuide(
            key="token",
            label="bot token",
            pattern=r"\d{5,}:[\w-]{20,}",
            example="123456789:AAE…",
            steps=(
                "Open https://t.me/BotFather in Telegram and send /newbot; the reply has the token.",
                "For a bot you already have: send /mybots, choose the bot, then API Token.",
            ),
        ),
    ),
)
