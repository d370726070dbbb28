"""Where people write from: one adapter per platform, none knowing another.

core        the contract, its errors, the registry, Markdown and splitting
telegram, discord, slack
            adapters made of several files
console, web
            the terminal and the page
"""
