"""Commands about models and costs, which work beside the conversation.

service       /model, /reasoning, /usage, /compact and /btw
summary       the summary that /compact stores
usage_table   the table that /usage shows
"""
