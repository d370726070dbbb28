"""A message's way through the gateway, in plain words: `holdfast why`.

facts       what is known of it, and how that is written
story       what happened, and when
standing    what it waits for now, and what would make it go on
shown       the same of what answers it
chats       a chat as a whole, and what was never received
Every state, decision and state of an answer has its words; a test walks through all of them.
"""
