"""The platform adapters in use, each supervised and restarted."""
