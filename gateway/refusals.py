"""Sans-IO: the shape of every refusal and error over HTTP; OpenAI's clients read it."""

import msgspec


class Error(msgspec.Struct, frozen=True):
    """Why something was not done."""

    message: str
    type: str
    param: str | None = None
    """The part of the request that is meant."""
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every response that is a refusal or an error."""

    error: Error


def error_body(error: Error) -> bytes:
    """Write the body of such a response."""
    return msgspec.json.encode(ErrorBody(error))
