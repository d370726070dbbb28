"""From an incoming message to the conversation that answers it."""
