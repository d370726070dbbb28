"""Files in both directions, and speech as text."""
