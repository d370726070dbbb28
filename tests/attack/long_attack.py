"""The long form of `make attack`: public lists of hostile strings, a browser, and floods of requests.

Not part of `make test`: it needs the package registries, Chromium, slowhttptest and h2load. What is
missing is a failure here, never a skip.
"""

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Page, async_playwright, expect

from tests.attack import alone, answers, insiders, servers
from tests.attack.chats import SOCKET_DOORS
from tests.attack.corpora import Corpora
from tests.attack.ledger import Judge, Ledger, Row, attack, verdict
from tests.attack.obedient import call
from tests.attack.stage import Seen, gate, prepare
from tests.attack.tricks import MARKUP
from tests.e2e.daemon import Daemon
from tests.e2e.page.actions import opened
from tests.e2e.page_kit import Stage, staged
from tests.fakes.chromium import ARGUMENTS, CHROMIUM, HAVE_CHROMIUM
from tests.fakes.model_server import ModelServer, echo

pytestmark = pytest.mark.timeout(1200)

KEY = "key-of-the-api-in-the-flood"
SECONDS = 40  # of each flood
SLOWEST = 2.0  # seconds in which a normal client is answered meanwhile
GROWTH = 100 * 2**20  # bytes that the daemon may hold more at the end
CONNECTIONS = 400
_CHUNK = 30
_DOORS = (SOCKET_DOORS[0], SOCKET_DOORS[2], SOCKET_DOORS[4])


@pytest.fixture(scope="session")
def corpora() -> Iterator[Corpora]:
    """Fetch the packages once."""
    with tempfile.TemporaryDirectory() as folder:
        yield Corpora(Path(folder))


# --- strings ---------------------------------------------------------------------------------------


@pytest.mark.quick
async def test_naughty_strings_as_answers_names_and_quotes(
    tmp_path: Path, ledger: Ledger, corpora: Corpora
) -> None:
    async with gate(tmp_path) as stage:
        await prepare(stage)
        before = await stage.standing()
        texts = list(enumerate(corpora.naughty()))
        for start in range(0, len(texts), _CHUNK):
            assert await attack(stage, _naughty(texts[start : start + _CHUNK]), ledger) == []
            for door in _DOORS:  # a long conversation costs more with every turn
                await door.say(stage, "ben", "/new")
        assert await stage.standing() == before


def _naughty(texts: list[tuple[int, str]]) -> Iterable[Row]:
    """Each string as an answer on one platform, and as a file name or a quote on another."""
    for number, text in texts:
        case = f"{number}: {text[:30]!r}"
        door, other = _DOORS[number % 3], _DOORS[(number + 1) % 3]
        attempt = answers.answered(door, text, _harmless)
        yield Row(f"{door.platform} answers", "naughty string", case, attempt)
        if number % 2:
            attached = insiders.attached(other, text)
            yield Row(f"{other.platform} attachments", "naughty string", case, attached)
            continue
        found = list(insiders.places(text).items())
        name, (quoted, more) = found[number % len(found)]
        framed = insiders.in_frame(quoted, more)
        yield Row(quoted.name, "naughty string", f"{name}, {case}", framed)


def _harmless(seen: Seen) -> str:
    return answers.find_hidden(seen) or answers.find_markup(seen)


async def test_no_listed_private_address_is_fetched(ledger: Ledger, corpora: Corpora) -> None:
    found = corpora.addresses()
    addresses = [f"[{each}]" if ":" in each else each for each in found]
    assert len(addresses) > 100
    assert await attack(alone.Alone(), await alone.fetch_rows(addresses, ()), ledger) == []


async def test_prompt_injections_as_tool_results(
    tmp_path: Path, ledger: Ledger, corpora: Corpora
) -> None:
    texts = corpora.injections()
    assert len(texts) > 300
    servers.furnish(tmp_path)
    orders = [call("pay", to="eve"), call("read_file", path="../telegram%3A1001/private.txt")]
    served = {str(n): f"{text}\n{orders[n % 2]}" for n, text in enumerate(texts)}
    servers.script(tmp_path, answers=served)
    async with (
        servers.HttpServer(tmp_path).open() as server,
        servers.household(tmp_path, server.settings()) as house,
    ):
        rows = [
            Row("tool results", "prompt injection", number, _injected(house, number))
            for number in served
        ]
        assert await attack(house, rows, ledger) == []


def _injected(house: servers.Household, number: str) -> insiders.Attempt:
    async def attempt(_: object) -> Judge:
        await house.ask(call("look", topic=number))
        told = house.kit.model.requests[-1].raw.decode()
        ran = ", ".join(house.till.ran)
        return verdict(ran or ("read a file of Ann" if "annsfilecanary" in told else ""))

    return attempt


# --- the page in a browser -------------------------------------------------------------------------

_DRAWN = """() => [...document.querySelectorAll("#log .row")].map((row) => ({
    text: row.innerText,
    bad: [...row.querySelectorAll(
        "script,iframe,object,embed,style,form,base,link,meta,video,audio,math,frame,template")]
        .filter((each) => !each.closest("button")).map((each) => each.tagName)
      .concat([...row.querySelectorAll("*")].flatMap((each) => [...each.attributes]
        .filter((one) => /^on/i.test(one.name)
            || /^(href|src|action|formaction|xlink:href)$/i.test(one.name)
               && /^\\s*(javascript|vbscript|data:text)/i.test(one.value)
            || /^src$/i.test(one.name) && /^(https?:)?\\/\\//i.test(one.value))
        .map((one) => `${one.name}=${one.value}`))),
}))"""


async def test_scripts_on_the_page_do_not_run(ledger: Ledger, corpora: Corpora) -> None:
    assert HAVE_CHROMIUM, "chromium is not installed"
    texts = [*MARKUP.values(), *corpora.scripts()]
    async with staged() as stage, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        context = await browser.new_context()
        asked: list[str] = []
        dialogs: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        context.on("dialog", lambda dialog: dialogs.append(dialog.message))
        await context.request.get(await stage.link())
        page = await opened(context, stage.url)
        rows = await _drawn(stage, page, texts)
        outside = [url for url in asked if not url.startswith((stage.url, "data:", "blob:"))]
        rows += [_done("dialogs", str(dialogs or "")), _done("requests", str(outside or ""))]
        await browser.close()
    assert await attack(alone.Alone(), rows, ledger) == []


async def _drawn(stage: Stage, page: Page, texts: list[str]) -> list[Row]:
    chat = page.url.rpartition("/")[2]
    for number, text in enumerate(texts):
        await stage.post(chat, f"{text}\n\nend{number}.")
    await expect(page.locator("#log .row").last).to_contain_text(
        f"end{len(texts) - 1}.", timeout=60_000
    )
    shown = await page.evaluate(_DRAWN)
    bad = {}
    for each in shown:
        if match := re.search(r"end(\d+)\.\s*$", each["text"].partition("\n\n\n")[0].strip()):
            bad[int(match[1])] = each["bad"]
    return [
        _done(f"{number}: {text[:40]!r}", str(bad.get(number, []) or ""))
        for number, text in enumerate(texts)
    ]


def _done(case: str, problem: str) -> Row:
    async def attempt(_: object) -> Judge:
        return verdict(problem)

    return Row("page in a browser", "script", case, attempt)


# --- floods ----------------------------------------------------------------------------------------

FLOODS: dict[str, list[str]] = {
    "slow headers": ["slowhttptest", "-H", "-i", "5", "-r", "200", "-x", "24"],
    "slow body": ["slowhttptest", "-B", "-i", "5", "-r", "200", "-s", "8192", "-t", "POST"],
    "slow reading": ["slowhttptest", "-X", "-r", "200", "-w", "1", "-y", "2", "-n", "5", "-z", "1"],
    "ranges": ["slowhttptest", "-R", "-r", "200", "-a", "10", "-b", "3000"],
    "many requests": ["h2load", "--h1", "-c", "200", "--rps", "5", "-D", str(SECONDS)],
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_normal_client_is_answered_in_a_flood(
    tmp_path: Path, ledger: Ledger, flood: str
) -> None:
    words = FLOODS[flood]
    assert shutil.which(words[0]), f"{words[0]} is not installed"
    async with ModelServer(echo()) as model:
        daemon = Daemon(
            tmp_path,
            'model.provider="openai"',
            'model.name="scripted"',
            f'model.base_url="{model.url}"',
            'model.api_key="sk-none"',
            f'http.api_key="{KEY}"',
        )
        async with daemon:
            rows = await _flooded(daemon, flood, words)
    assert await attack(alone.Alone(), rows, ledger) == []


async def _flooded(daemon: Daemon, flood: str, words: list[str]) -> list[Row]:
    await _ask(daemon)
    held, connections = _resident(daemon), _sockets(daemon)
    url = f"{daemon.url}/livez"
    more = (
        [url] if words[0] == "h2load" else ["-c", str(CONNECTIONS), "-l", str(SECONDS), "-u", url]
    )
    process = await asyncio.create_subprocess_exec(
        *words, *more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    loop = asyncio.get_running_loop()
    slowest, most, asked, failed = 0.0, 0, 0, ""
    try:
        while process.returncode is None:
            began = loop.time()
            failed = failed or await _ask(daemon)
            slowest, asked = max(slowest, loop.time() - began), asked + 1
            most = max(most, _sockets(daemon))
            await asyncio.sleep(1)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    left = await _sockets_left(daemon, connections)
    growth = _resident(daemon) - held
    return [
        _flood_row(flood, "a client is answered", failed or f"{asked} times" * (asked < 2)),
        _flood_row(flood, "in time", f"{slowest:.1f} s" * (slowest > SLOWEST)),
        _flood_row(flood, "bounded memory", f"{growth >> 20} MB more" * (growth > GROWTH)),
        _flood_row(flood, "bounded connections", f"{most}" * (most > CONNECTIONS + 100)),
        _flood_row(flood, "connections end", f"{left} left" * (left > 0)),
    ]


def _flood_row(flood: str, case: str, problem: str) -> Row:
    async def attempt(_: object) -> Judge:
        return verdict(problem)

    return Row("flood of the port", flood, case, attempt)


async def _ask(daemon: Daemon) -> str:
    """Ask the model as a client of the API; return what went wrong."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"Authorization": f"Bearer {KEY}"}
    timeout = aiohttp.ClientTimeout(total=20)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.post(f"{daemon.url}/v1/chat/completions", json=body, headers=headers) as answer,
        ):
            text = json.dumps(await answer.json())
            return "" if "echo: hello" in text else f"status {answer.status}: {text[:100]}"
    except (aiohttp.ClientError, TimeoutError) as error:
        return repr(error)


def _resident(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def _sockets(daemon: Daemon) -> int:
    count = 0
    for each in Path(f"/proc/{daemon.pid}/fd").iterdir():
        try:
            count += str(each.readlink()).startswith("socket:")
        except OSError:  # closed meanwhile
            continue
    return count


async def _sockets_left(daemon: Daemon, before: int) -> int:
    """Wait until the connections of the flood are closed; return the number of the others."""
    async with asyncio.timeout(90):
        while (left := _sockets(daemon) - before) > 10:  # noqa: ASYNC110 - the kernel sends no notification
            await asyncio.sleep(0.5)
    return max(left - 10, 0)
