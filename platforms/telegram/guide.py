"""Sans-IO: how somebody gets a bot on Telegram."""

from platforms.core.guide import SetupGuide, TokenGuide

GUIDE = SetupGuide(
    tokens=(
        TokenGuide(
            key="token",
            label="bot token",
            pattern=r"\d{5,}:[\w-]{20,}",
            example="123456789:AAE…",
            steps=(
                "Open https://t.me/BotFather in Telegram and send /newbot; its answer has the token.",
                "Of a bot that you have already: send /mybots, choose it, then API Token.",
            ),
        ),
    ),
)
