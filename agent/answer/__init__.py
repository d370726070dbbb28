"""Turns the chunks of a model stream into one checked answer.

accumulate        collects chunks; `call_slots` assembles tool calls, `think_tags` separates
                  reasoning from text, `reasoning_blocks` keeps reasoning for replay
seam              joins a cut text with its continuation
repetition        detects endless repetition; `empty_promise` detects announcements without a call
partial_json      reads the beginning of a truncated call; `json_repair` applies lossless JSON fixes
"""
