"""Commands, examples and links of the documentation work."""

import pkgutil
import re
import typing
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from gateway.config.decode import unwrap_type
from gateway.settings import Settings
from platforms.core.registry import load_specs
from scripts.command_docs import page as page_of_commands
from tests.docs.command_lines import find_error
from tests.docs.pages import LANGUAGES, ROOT, Page, pages
from tests.docs.reader import PageError, Reader
from tests.e2e.gateway_kit import talkative
from tests.fakes.discord.server import TOKEN as DISCORD_TOKEN
from tests.fakes.discord.server import discord_server
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.server import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.fakes.telegram.server import serving

PAGES = pages()
BY_NAME = {page.name: page for page in PAGES}
INDEX = "docs/README.md"

_KEY = re.compile(r"([a-z]+(?:\.[a-z_]+)+)(?: = .+)?")
_PLACE = re.compile(r"(?:agent|deploy|docs|gateway|platforms|scripts|sessions|tests)/[\w./-]+")


# --- executed blocks -----------------------------------------------------------------------------


async def page_error(page: Page, folder: Path) -> str:
    """Execute a page and return its first error; empty if everything works."""
    async with AsyncExitStack() as opened:
        more = {}
        if page.name == "docs/discord.md":
            discord = await opened.enter_async_context(discord_server())
            more["HOLDFAST_PLATFORMS__DISCORD__BASE_URL"] = discord.url
            more["DISCORD_BOT_TOKEN"] = DISCORD_TOKEN
        if page.name == "docs/slack.md":
            slack = await opened.enter_async_context(SlackServer())
            more["HOLDFAST_PLATFORMS__SLACK__BASE_URL"] = slack.url
            more |= {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
        telegram = await opened.enter_async_context(serving())
        model = await opened.enter_async_context(ModelServer(talkative))
        reader = await opened.enter_async_context(Reader(folder, telegram, model, **more))
        try:
            await reader.read(page)
        except PageError as error:
            return str(error)
        return ""


@pytest.mark.parametrize(
    "page", [each for each in PAGES if each.is_executable], ids=lambda each: each.name
)
async def test_every_block_of_a_page_works(page: Page, tmp_path: Path) -> None:
    if trouble := await page_error(page, tmp_path):
        pytest.fail(trouble, pytrace=False)


# --- names and links -----------------------------------------------------------------------------


def unmarked(page: Page) -> Iterator[str]:
    """Yield blocks without a known language."""
    for block in page.blocks:
        if block.language not in LANGUAGES:
            known = ", ".join(sorted(LANGUAGES))
            yield f"{page.name}:{block.line}: a block of {block.language or 'nothing'}, not {known}"


def unknown_commands(page: Page) -> Iterator[str]:
    """Yield `holdfast` commands and options that do not exist."""
    for each in page.spans:
        words = each.text.split()
        trouble = find_error(words[1:]) if words[0] == "holdfast" else ""
        if trouble:
            yield f"{page.name}:{each.line}: `{each.text}`: {trouble}"
    for block in page.blocks:
        if block.language == "text":
            for number, line in enumerate(block.text.splitlines(), block.line):
                if (words := line.split())[:1] == ["holdfast"] and (
                    trouble := find_error(words[1:])
                ):
                    yield f"{page.name}:{number}: `{line.strip()}`: {trouble}"


def unknown_keys(page: Page) -> Iterator[str]:
    """Yield configuration keys that do not exist."""
    for each in page.spans:
        found = _KEY.fullmatch(each.text)
        if not found or found[1].partition(".")[0] not in Settings.__struct_fields__:
            continue
        if not is_key(Settings, found[1].split(".")) and not is_code(found[1]):
            yield f"{page.name}:{each.line}: `{each.text}`: there is no such key"


def is_key(kind: Any, path: list[str]) -> bool:
    bare = unwrap_type(kind)
    if not path:
        return True
    if typing.get_origin(bare) in {tuple, dict}:
        arguments = typing.get_args(bare)
        if bare == dict[str, Any] or arguments[-1] is Struct:  # by the platform's name
            return path[0] in load_specs() and is_key(load_specs()[path[0]].config, path[1:])
        inside = arguments[0] if typing.get_origin(bare) is tuple else arguments[1]
        return is_key(inside, path)
    if not (isinstance(bare, type) and issubclass(bare, Struct)):
        return False
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(bare)}
    return path[0] in fields and is_key(fields[path[0]], path[1:])


def is_code(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def missing_files(page: Page) -> Iterator[str]:
    """Yield source files and folders that do not exist."""
    for each in page.spans:
        if _PLACE.fullmatch(each.text) and not (ROOT / each.text).exists():
            yield f"{page.name}:{each.line}: `{each.text}`: there is no such file or folder"


def dead_links(page: Page) -> Iterator[str]:
    """Yield links to pages, files and headings that do not exist."""
    for each in page.links:
        target, _, anchor = each.text.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (page.path.parent / target).resolve() if target else page.path
        if target and not path.exists():
            yield f"{page.name}:{each.line}: {each.text}: there is no such file"
        elif anchor and path.suffix == ".md":
            there = Page(path) if target else page
            if anchor not in there.anchors:
                yield f"{page.name}:{each.line}: {each.text}: there is no such heading"


CHECKS = (unmarked, unknown_commands, unknown_keys, missing_files, dead_links)


@pytest.mark.parametrize("page", PAGES, ids=lambda each: each.name)
def test_names_and_links_of_a_page_exist(page: Page) -> None:
    problems = [problem for look in CHECKS for problem in look(page)]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_links_of_decisions_exist() -> None:
    records = map(Page, sorted((ROOT / "docs/decisions").glob("*.md")))
    assert [problem for page in records for problem in dead_links(page)] == []


def test_every_page_is_reachable_from_the_index() -> None:
    reached, ahead = set[str](), [INDEX]
    while ahead:
        name = ahead.pop()
        if name not in reached and name in BY_NAME:
            reached.add(name)
            page = BY_NAME[name]
            for link in page.links:
                path = (page.path.parent / link.text.partition("#")[0]).resolve()
                if path.is_relative_to(ROOT):
                    ahead.append(str(path.relative_to(ROOT)))
    lost = {*BY_NAME} - reached - {"README.md"}  # the README links to the index
    assert lost == set(), "these pages are not linked"
    assert any(link.text == INDEX for link in BY_NAME["README.md"].links)


def test_the_index_has_a_line_for_every_page() -> None:
    direct = {link.text for link in BY_NAME[INDEX].links}
    here = {Path(name).name for name in BY_NAME if name.startswith("docs/")} - {"README.md"}
    assert here - direct == set()


def test_the_page_of_commands_is_up_to_date() -> None:
    assert BY_NAME["docs/commands.md"].text == page_of_commands(), (
        "run: python -m scripts.command_docs"
    )


# --- tests of the checks themselves -------------------------------------------------------


def made(text: str) -> Page:
    return Page(ROOT / "docs/made-up.md", text)


@pytest.mark.parametrize(
    ("look", "text", "problem"),
    [
        (unmarked, "```\nholdfast run\n```\n", "2: a block of nothing"),
        (unmarked, "```bash\nholdfast run\n```\n", "2: a block of bash"),
        (unknown_commands, "words\n`holdfast stats`", "2: `holdfast stats`: there is no command"),
        (unknown_commands, "`holdfast status --jsn`", "has no option --jsn"),
        (unknown_commands, "`holdfast config\nsho`", "1: `holdfast config sho`: there is no"),
        (unknown_commands, "`holdfast pair list|aprove`", "`holdfast pair aprove`"),
        (unknown_commands, "```text\nholdfast lnk\n```\n", "2: `holdfast lnk`"),
        (unknown_keys, "`gateway.drain` is", "1: `gateway.drain`: there is no such key"),
        (unknown_keys, "`platforms.telegram.tokn`", "there is no such key"),
        (unknown_keys, '`model.fallback.nme = "x"`', "there is no such key"),
        (missing_files, "`gateway/notthere.py`", "there is no such file"),
        (dead_links, "[a](nowhere.md)", "nowhere.md: there is no such file"),
        (dead_links, '<img src="nowhere.png">', "nowhere.png: there is no such file"),
        (dead_links, "[a](api.md#nowhere)", "there is no such heading"),
        (dead_links, "# One\n\n[a](#two)", "3: #two: there is no such heading"),
    ],
)
def test_an_error_of_a_page_is_reported_in_one_line(look: Any, text: str, problem: str) -> None:
    (said,) = look(made(text))
    assert said.startswith("docs/made-up.md:")
    assert problem in said


def test_a_correct_page_has_no_errors() -> None:
    text = """# A heading, and `one`

`holdfast sessions list|show|…` `holdfast config show --secrets` `holdfast why CHAT\\|MESSAGE`
`gateway.drain_seconds` `platforms.slack.mode` `model.timeouts.connect` `gateway.config.loader`
`limits.users` `tools.shell.sandbox` [a](#a-heading-and-one) [b](api.md#responses)
`sessions/conversation/machine.py` `holdfast run --set KEY=VALUE`
"""
    assert [problem for look in CHECKS for problem in look(made(text))] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```sh\ntrue\nfalse\n```\n", "3: `false`: exit code 1: no error message"),
        ("```sh\nholdfast config check --set http.prt=1\n```\n", "exit code 78: --set http.prt=1"),
        ("```sh\nholdfast run --set http.prt=1\n```\n", "unknown key http.prt"),
        ("```sh\nholdfast service nonsense\n```\n", "`holdfast service"),
        ("```sh\nholdfast selftest --fast\n```\n", "has no option --fast"),
        ("```sh\nsystemctl status 'holdfast\n```\n", "unexpected EOF"),
        ("```python\nraise ValueError('no')\n```\n", "2: `python`: ValueError: no"),
        ("```toml\n[gateway]\nbsy = 'queue'\n```\n", "unknown key gateway.bsy"),
        ("```toml\n[project.entry-points.'holdfast.tool']\na = 'b:c'\n```\n", "holdfast.tool"),
        ("```json\n{\n```\n", "2: `json`"),
    ],
)
async def test_a_failing_block_is_reported_in_one_line(
    text: str, problem: str, tmp_path: Path
) -> None:
    said = await page_error(made(text), tmp_path)
    assert said.startswith("docs/made-up.md:")
    assert "\n" not in said
    assert problem in said


async def test_all_blocks_of_a_page_share_one_shell(tmp_path: Path) -> None:
    text = """
```sh
export GREETING="good day"   # stays
mkdir notes && cd notes
```

```sh
test "$GREETING from $(basename "$PWD")" \\
  = "good day from notes"
test "$(holdfast config show --set http.port=9000 | grep -c 9000)" = 1
sudo holdfast serve
```
"""
    said = await page_error(made(text), tmp_path)
    assert said.startswith("docs/made-up.md:11: `sudo holdfast serve`: there is no command")
