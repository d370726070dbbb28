"""From a conversation to the request that a model receives."""
