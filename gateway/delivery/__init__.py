"""Delivery is reconciliation: what a chat should show against what it is known to show.

view      what an item should look like on a platform, and what of it is known to be shown
plan      the next single op that brings the one closer to the other, and what its outcome means
queue     which of a chat's items is next, and when
pacing    when a chat may take another op
lane      carries out the ops of one chat, one after the other
signs     signs on people's messages, which give way to everything else
link      one adapter as the lanes see it
outbox    `Delivery`: all lanes, their start and end
"""
