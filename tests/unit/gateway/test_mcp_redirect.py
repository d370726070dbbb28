"""The answer that a login waits for: only its own, as a redirect, an address or a code."""

import pytest

from agent.tools.mcp.contract import LoginFailed, RedirectAnswer
from gateway.mcp.redirect import AwaitedRedirect, LoginRefused, OtherLogin

PAGE = "https://login.example.org/authorize?client_id=1&state=own"


async def begun() -> AwaitedRedirect:
    awaited = AwaitedRedirect()
    awaited.begin(PAGE)
    return awaited


async def test_an_address_counts_only_with_the_state_of_its_login() -> None:
    awaited = await begun()
    for other in ("?code=1&state=other", "?code=1", "", "http://[", "?error=no&state=other"):
        with pytest.raises(OtherLogin):
            awaited.take_address(other)
    with pytest.raises(LoginFailed, match="contains no code"):
        awaited.take_address("/callback?state=own")
    awaited.take_address("/callback?code=2&state=own&iss=me")
    awaited.take_address("/callback?code=3&state=own")  # too late
    assert await awaited.wait() == RedirectAnswer("2", "own", "me")


async def test_nothing_counts_before_the_login_page_is_known() -> None:
    with pytest.raises(OtherLogin):
        AwaitedRedirect().take_address("/callback?code=1&state=")


async def test_a_refusal_ends_the_login() -> None:
    awaited = await begun()
    with pytest.raises(LoginRefused, match="not today"):
        awaited.take_address("/callback?error=no&error_description=not+today&state=own")
    with pytest.raises(LoginFailed, match="not today"):
        await awaited.wait()


async def test_a_code_alone_gets_the_state_of_the_login() -> None:
    awaited = await begun()
    awaited.take_code(" abc ")
    assert await awaited.wait() == RedirectAnswer("abc", "own")


@pytest.mark.parametrize("address", ["javascript:alert(1)", "file:///etc/passwd", ""])
async def test_a_login_page_must_be_a_web_page(address: str) -> None:
    with pytest.raises(LoginFailed, match="not a web page"):
        AwaitedRedirect().begin(address)


async def test_a_login_has_one_page() -> None:
    awaited = await begun()
    with pytest.raises(LoginFailed, match="second login"):
        awaited.begin(PAGE)
