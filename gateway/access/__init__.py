"""Who may talk to the agent, and with which authority."""
