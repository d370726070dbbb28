"""Models: the provider contract, known abilities, failures, fallback and usage."""
