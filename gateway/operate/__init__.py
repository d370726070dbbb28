"""What an operator runs; nothing of the daemon imports it."""
