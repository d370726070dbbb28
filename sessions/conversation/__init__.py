"""Conversations: the state machine, its actor and the pool of actors."""
