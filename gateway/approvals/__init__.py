"""Questions to people before a risky tool call runs."""
