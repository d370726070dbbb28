"""Attaching files and receiving files."""

import base64
from pathlib import Path

import pytest
from playwright.async_api import FilePayload, Page, Route, expect

from platforms.core.contract import File, InboundMessage
from tests.e2e.page.actions import chat_of, rows, send
from tests.e2e.page_kit import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
NOTES: FilePayload = {"name": "notes 🙂.txt", "mimeType": "text/plain", "buffer": b"words"}
PICTURE: FilePayload = {"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL}


def said(stage: Stage) -> list[InboundMessage]:
    return [event for event in stage.received if isinstance(event, InboundMessage)]


async def test_chosen_files_go_with_the_next_message(stage: Stage, page: Page) -> None:
    await page.locator("#pick").set_input_files([NOTES, PICTURE])
    await expect(page.locator("#files .chip")).to_have_text(["notes 🙂.txt", "dot.png"])
    await send(page, "say thank you")
    await expect(page.locator("#files .chip")).to_have_count(0)
    mine = rows(page, "user")
    await expect(mine.locator(".chip")).to_have_text(["notes 🙂.txt"])
    await expect(mine.locator("img")).to_have_js_property("naturalWidth", 1)
    await expect(rows(page, "answer")).to_contain_text("thank you")
    (event,) = said(stage)
    files = [part for part in event.parts if isinstance(part, File)]
    assert [(file.name, file.media_type, file.size) for file in files] == [
        ("notes 🙂.txt", "text/plain", 5),
        ("dot.png", "image/png", len(PIXEL)),
    ]
    async with page.expect_download() as download:
        await mine.locator("a.chip").click()
    got = await download.value
    assert got.suggested_filename == "notes 🙂.txt"
    path = await got.path()
    assert path.read_bytes() == b"words"


async def test_files_can_be_sent_without_text_and_removed(stage: Stage, page: Page) -> None:
    await expect(page.locator("#send")).to_be_disabled()
    await page.locator("#pick").set_input_files([NOTES, PICTURE])
    await page.get_by_label("Remove dot.png").click()
    await expect(page.locator("#files .chip")).to_have_text(["notes 🙂.txt"])
    await expect(page.locator("#send")).to_be_enabled()
    await page.locator("#send").click()
    await expect(rows(page, "user").locator(".chip")).to_have_text(["notes 🙂.txt"])
    await expect(rows(page, "user").locator(".body")).to_be_hidden()
    (event,) = said(stage)
    assert len(event.parts) == 1


async def test_a_message_waits_for_its_uploads(stage: Stage, page: Page) -> None:
    held: list[Route] = []

    async def hold(route: Route) -> None:
        held.append(route)

    await page.route("**/files", hold)
    await page.locator("#pick").set_input_files(NOTES)
    await page.get_by_label("Message", exact=True).fill("say hello")
    await expect(page.locator("#send")).to_be_disabled()
    await page.get_by_label("Message", exact=True).press("Enter")
    await expect(rows(page)).to_have_count(0)
    await held[0].continue_()
    await expect(rows(page, "user").locator(".chip")).to_have_count(1)
    assert len(said(stage)) == 1


async def test_a_failed_upload_is_reported_and_the_text_stays(stage: Stage, page: Page) -> None:
    await page.route("**/files", lambda route: route.abort())
    await page.get_by_label("Message", exact=True).fill("say hello")
    await page.locator("#pick").set_input_files(NOTES)
    await expect(page.locator("#toast")).to_contain_text("notes 🙂.txt was not attached.")
    await expect(page.locator("#files .chip")).to_have_count(0)
    await expect(page.get_by_label("Message", exact=True)).to_have_value("say hello")
    assert stage.received == []


@pytest.mark.parametrize(
    ("size", "words"), [(0, "is empty"), (15_000_001, "a file can have up to 15 MB")]
)
async def test_an_unacceptable_file_is_refused_at_once(
    page: Page, tmp_path: Path, size: int, words: str
) -> None:
    file = tmp_path / "odd.bin"
    with file.open("wb") as written:
        written.truncate(size)
    await page.locator("#pick").set_input_files(file)
    await expect(page.locator("#toast")).to_contain_text(words)
    await expect(page.locator("#files .chip")).to_have_count(0)


PASTE = """() => {
  const data = new DataTransfer();
  data.items.add(new File(["words"], "pasted.txt", { type: "text/plain" }));
  document.querySelector("#composer-text").dispatchEvent(
    new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""
DROP = """() => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File(["words"], "dropped.txt", { type: "text/plain" }));
  for (const type of ["dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
}"""


@pytest.mark.parametrize(("how", "name"), [(PASTE, "pasted.txt"), (DROP, "dropped.txt")])
async def test_files_can_be_pasted_and_dropped(page: Page, how: str, name: str) -> None:
    await page.evaluate(how)
    await expect(page.locator("#files .chip:not(.busy)")).to_have_text([name])


async def test_files_from_the_agent_are_shown_or_offered(stage: Stage, page: Page) -> None:
    await send(page, "say hello")
    await expect(rows(page, "answer")).to_have_count(1)
    picture, report = stage.folder / "dot.png", stage.folder / "report.html"
    picture.write_bytes(PIXEL)
    report.write_text("<script>parent.hacked = 1</script>")
    await stage.send_file(chat_of(page), picture, "image/png", "The **chart**")
    await stage.send_file(chat_of(page), report, "text/html")
    answers = rows(page, "answer")
    await expect(answers.nth(1).locator("img")).to_have_js_property("naturalWidth", 1)
    await expect(answers.nth(1).locator("strong")).to_have_text("chart")
    await expect(answers.nth(2).locator(".chip")).to_have_text("report.html")
    async with page.expect_download() as download:
        await answers.nth(2).locator("a.chip").click()
    assert (await download.value).suggested_filename == "report.html"
