"""The error of fetching from the web."""


class FetchError(Exception):
    """A resource could not be fetched; the message is a clause for people with the reason."""
