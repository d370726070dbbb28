"""Sans-IO: setup guide for getting a Discord bot token."""

from platforms.core.guide import SetupGuide, TokenGuide

GUIDE = SetupGuide(
    tokens=(
        TokenGuide(
            key="token",
            label="bot token",
            pattern=r"[\w-]{20,}\.[\w-]{5,}\.[\w-]{20,}",
            example="MTEx….Gx….…, three parts with dots between them",
            steps=(
                "Open https://discord.com/developers/applications: New Application, then Bot.",
                "There switch on Message Content Intent, press Reset Token and copy the token.",
            ),
        ),
    ),
    link="Add the bot to one of your servers:",
)
