"""The configuration: read, layered, decoded, compared and shown."""
