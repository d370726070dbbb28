"""Every sentence of Holdfast itself that a chat shows."""
