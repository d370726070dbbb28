"""Delivery as reconciliation: compares the wanted messages of a chat with the shown ones.

view    Sans-IO: the content of an item, the messages on a platform, and their stored state
plan    Sans-IO: the next op for an item, and the effect of an op's outcome
queue   Sans-IO: the next item of a chat, and when
pacing  Sans-IO: the send budgets of a chat and an account
lane    carries out the ops of one chat and stores their results
signs   reactions on people's messages, with the lowest priority
link    one adapter with deadlines and error handling
outbox  `Delivery`: all lanes, their start and end
"""
