"""From the chunks of a stream to one answer, checked and repaired."""
