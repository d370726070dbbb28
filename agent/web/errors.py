"""The error of fetching."""


class FetchError(Exception):
    """What was wanted did not come; the message says why, in half a sentence for people."""
