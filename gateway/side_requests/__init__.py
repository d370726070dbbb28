"""Commands about models and costs, which run in parallel to the turns of a conversation.

service       /model, /reasoning, /usage, /compact and /btw
jobs          slow commands, each in its own task
summary       the summary that /compact stores
usage_table   the table that /usage shows
"""
