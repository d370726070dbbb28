"""Turns of the agent, from preparation to what the chat sees."""
