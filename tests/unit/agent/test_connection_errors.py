"""The agent's error for each exception of the HTTP client."""

import httpx2
import pytest

from agent import errors
from agent.providers.transport.connections import translate_error
from agent.providers.transport.sse import EventTooLong

_URL = "http://h/{v1}"


@pytest.mark.parametrize(
    ("error", "ours", "message"),
    [
        (httpx2.ConnectError("x"), errors.Overloaded, f"no connection to {_URL}"),
        (httpx2.ConnectTimeout("x"), errors.Overloaded, f"no connection to {_URL} in time"),
        (httpx2.PoolTimeout("x"), errors.Overloaded, f"no free connection to {_URL}"),
        (httpx2.ProxyError("x"), errors.Overloaded, f"the proxy for {_URL} failed"),
        (httpx2.ReadTimeout("x"), errors.Stalled, f"{_URL} stopped sending"),
        (httpx2.WriteTimeout("x"), errors.Stalled, f"{_URL} stopped sending"),
        (httpx2.UnsupportedProtocol("x"), errors.BadRequest, f"{_URL} is not a supported URL"),
        (httpx2.TooManyRedirects("x"), errors.BadRequest, f"too many redirects from {_URL}"),
        (
            httpx2.LocalProtocolError("{x}"),
            errors.BadRequest,
            "the request could not be written: {x}",
        ),
        (httpx2.RemoteProtocolError("{x}"), errors.EndedEarly, "{x}"),
        (httpx2.ReadError(""), errors.ConnectionLost, "ReadError"),
        (httpx2.DecodingError("x"), errors.ConnectionLost, "x"),
        (httpx2.StreamError("x"), errors.ConnectionLost, "x"),
        (EventTooLong("x"), errors.ConnectionLost, "x"),
        (ValueError("x"), errors.BadRequest, "x"),
        (ValueError(), errors.BadRequest, "ValueError"),
    ],
)
def test_each_exception_becomes_an_error_of_the_agent(
    error: Exception, ours: type[errors.ProviderError], message: str
) -> None:
    translated = translate_error(error, _URL)
    assert type(translated) is ours
    assert str(translated) == message
