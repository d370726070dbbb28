"""Chatting on the page, with an agent scripted by the message (see page_kit.py)."""

import asyncio

import pytest
from playwright.async_api import Page, Route, expect

from platforms.core.contract import Address, Button, Draft
from tests.e2e.page.actions import chat_of, rows, send, words
from tests.e2e.page_kit import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_answer_grows_visibly(stage: Stage, page: Page) -> None:
    await send(page, "half The first words of it, and then the **second** part")
    draft = page.locator("#live .row.draft")
    await expect(draft).to_contain_text("The first words")
    await expect(draft).not_to_contain_text("part")
    assert (await page.title()).startswith("✍ ")
    await draft.evaluate("(node) => { node.mark = 'the same element'; }")
    stage.go.set()
    answer = rows(page, "answer")
    await expect(answer).to_contain_text("and then the second part")
    await expect(answer.locator("strong")).to_have_text("second")
    await expect(draft).to_have_count(0)
    # The draft turned into the answer; nothing disappeared in between.
    assert await answer.evaluate("(node) => node.mark") == "the same element"
    await expect(page.locator("#announce")).to_contain_text("and then the")
    await expect(page).to_have_title(
        "half The first words of it, and then the **second** part · Holdfast"
    )


async def test_a_reload_during_an_answer_loses_and_duplicates_nothing(
    stage: Stage, page: Page
) -> None:
    await send(page, "half one two three four five six seven eight")
    await expect(page.locator("#live .row")).to_contain_text("one two")
    await page.reload()
    await expect(page.locator("#live .row")).to_contain_text("one two")
    stage.go.set()
    await expect(words(page, "answer")).to_have_text(["one two three four five six seven eight"])
    await expect(rows(page)).to_have_count(2)
    await expect(page.locator("#live .row")).to_have_count(0)


async def test_a_restart_during_an_answer_loses_and_duplicates_nothing(
    stage: Stage, page: Page
) -> None:
    await send(page, "half one two three four five six seven eight")
    await expect(page.locator("#live .row")).to_contain_text("one two")
    await stage.stop()
    await expect(page.locator("#link-state")).to_have_text("Reconnecting…")
    assert (await page.title()).startswith("Reconnecting…")
    await send(page, "say while nobody was there")
    await expect(page.locator("#unsent .row")).to_contain_text("cannot be reached")
    stage.go.set()
    await stage.start()
    await expect(page.locator("#link-state")).to_be_empty()
    await expect(words(page, "answer")).to_have_text(
        ["one two three four five six seven eight", "while nobody was there"]
    )
    await expect(rows(page, "user")).to_have_count(2)
    await expect(page.locator("#unsent .row, #live .row")).to_have_count(0)


async def test_a_message_whose_receipt_was_lost_is_stored_once(stage: Stage, page: Page) -> None:
    tries: list[str] = []

    async def lose_first(route: Route) -> None:
        tries.append(route.request.post_data or "")
        if len(tries) == 1:
            await route.fetch()  # the request arrives, but the page gets no response
            await route.abort()
        else:
            await route.continue_()

    # Without its stream the page cannot see the row either.
    await page.route("**/events*", lambda route: route.abort())
    await stage.restart()
    await page.route("**/messages", lose_first)
    await send(page, "say only once")
    await expect(page.locator("#unsent .row")).to_contain_text("Send again")
    await expect(page.locator("#unsent .row")).not_to_contain_text("Send again")
    assert len(tries) == 2
    assert tries[0] == tries[1]
    await page.unroute("**/events*")
    await page.reload()
    await expect(rows(page, "user")).to_have_count(1)
    await expect(words(page, "answer")).to_have_text(["only once"])


async def test_a_message_that_was_not_stored_can_be_sent_again(stage: Stage, page: Page) -> None:
    stage.broken = True
    await send(page, "say important words")
    unsent = page.locator("#unsent .row")
    await expect(unsent).to_contain_text("could not be stored just now")
    await page.reload()  # the message survives a reload, too
    await expect(unsent).to_contain_text("important words")
    await expect(unsent).to_contain_text("could not be stored just now")
    stage.broken = False
    await unsent.get_by_role("button", name="Send again").click()
    await expect(words(page, "answer")).to_have_text(["important words"])
    await expect(unsent).to_have_count(0)
    kept = "Object.keys(localStorage).filter((key) => key.includes('unsent'))"
    assert await page.evaluate(kept) == []


async def test_a_message_that_is_too_long_can_be_discarded(page: Page) -> None:
    await send(page, "too long " * 120_000)
    unsent = page.locator("#unsent .row")
    await expect(unsent).to_contain_text("too long")
    await unsent.get_by_role("button", name="Discard").click()
    await expect(unsent).to_have_count(0)


async def test_a_message_behind_a_slow_one_is_not_shown_as_failed(page: Page) -> None:
    taken = asyncio.Event()

    async def slowly(route: Route) -> None:
        await taken.wait()
        await route.continue_()

    await page.route("**/messages", slowly)
    await send(page, "say one")
    await send(page, "say two")
    unsent = page.locator("#unsent .row .foot")
    await expect(unsent).to_have_text(["Sending…", "Sending…"])
    taken.set()
    await expect(words(page, "answer")).to_have_text(["one", "two"])
    await expect(unsent).to_have_count(0)


async def test_every_unsent_message_shows_a_reason(page: Page) -> None:
    await page.route("**/messages", lambda route: route.abort())
    await send(page, "say one")
    await send(page, "say two")
    unsent = page.locator("#unsent .row .foot")
    await expect(unsent).to_contain_text(["cannot be reached right now"] * 2)
    await page.unroute("**/messages")
    await unsent.last.get_by_role("button", name="Send again").click()
    await expect(words(page, "answer")).to_have_text(["one", "two"])


async def test_a_status_without_text_disappears_at_once(stage: Stage, page: Page) -> None:
    await send(page, "say one")
    await expect(rows(page, "answer")).to_have_count(1)
    await page.clock.install(time="2030-01-01T00:00:00Z")
    await page.clock.pause_at("2030-01-01T01:00:00Z")
    place = Address(platform="web", chat=chat_of(page))
    await stage.adapter.deliver(Draft("op", place, draft="i_2", text="", status="⏳ no output"))
    await page.clock.run_for(200)
    await expect(page.locator("#live .status")).to_have_text("⏳ no output")
    await stage.adapter.deliver(Draft("op", place, draft="i_2", text="", status=""))
    await expect(page.locator("#live .row")).to_have_count(0)  # immediately


async def test_thoughts_without_an_answer_are_folded_and_not_announced(
    stage: Stage, page: Page
) -> None:
    await send(page, "say one")
    await expect(page.locator("#announce")).to_have_text("one")
    thoughts = "💭 **Thinking**\n> This is *hard*."
    place = Address(platform="web", chat=chat_of(page))
    await stage.adapter.deliver(Draft("op", place, draft="r_2", text=thoughts))
    growing = page.locator("#live .row.thoughts .body")
    await expect(growing).to_be_visible()
    await expect(growing).to_have_text("This is hard.")
    await stage._post(chat_of(page), "r_2", thoughts, "notice")
    await expect(rows(page, "thoughts")).to_have_count(1)
    await expect(rows(page, "thoughts").locator(".body")).to_be_hidden()
    await expect(page.locator("#announce")).to_have_text("one")


async def test_ten_messages_at_once_are_answered_once_each_in_order(page: Page) -> None:
    said = ["alpha", "bravo", "carol", "delta", "eagle", "fable", "gamma", "hotel", "india", "joy"]
    for word in said:
        await send(page, f"say {word}")
    await expect(words(page, "answer")).to_have_text(said)
    await expect(rows(page, "user")).to_contain_text(said)
    await expect(rows(page, "user").get_by_text("Waiting")).to_have_count(0)
    await expect(page.locator("#unsent .row, #live .row")).to_have_count(0)
    await expect(rows(page)).to_have_count(20)


async def test_edits_and_deletions_are_shown(stage: Stage, page: Page) -> None:
    item = await stage.post(chat_of(page), "first words")
    await expect(words(page, "answer")).to_have_text(["first words"])
    await stage.edit(chat_of(page), item, "better words")
    await expect(words(page, "answer")).to_have_text(["better words"])
    await stage.delete(chat_of(page), item)
    await expect(rows(page)).to_have_count(0)


async def test_a_message_withdrawn_while_the_page_was_not_connected_disappears(
    stage: Stage, page: Page
) -> None:
    await stage.post(chat_of(page), "stays")
    item = await stage.post(chat_of(page), "1 message is queued", "notice")
    await expect(rows(page, "notice")).to_have_count(1)
    await stage.stop()
    stage.archive.remove(chat_of(page), item)
    await stage.start()
    await expect(rows(page, "notice")).to_have_count(0)
    await expect(words(page, "answer")).to_have_text(["stays"])


async def test_states_of_messages_are_shown(stage: Stage, page: Page) -> None:
    await send(page, "hang")
    await send(page, "say waiting")
    await expect(rows(page, "user").last).to_contain_text("Waiting for its turn")
    waiting = stage.archive.of(chat_of(page))[-1]
    for state, sentence in (("held", "Kept with the stopped"), ("refused", "Not accepted")):
        stage.archive.change(chat_of(page), waiting.id, state=state)
        stage.adapter._hub.on_user_message(chat_of(page))
        await expect(rows(page, "user").last).to_contain_text(sentence)


async def test_the_stop_button_ends_an_answer(page: Page) -> None:
    stop = page.get_by_role("button", name="Stop the answer")
    await expect(stop).to_be_hidden()
    await send(page, "hang")
    await expect(page.locator("#thinking")).to_be_visible()
    await stop.click()
    await expect(rows(page, "notice")).to_contain_text(["Stopped"])
    await expect(stop).to_be_hidden()
    await expect(page.locator("#thinking")).to_be_hidden()
    await expect(words(page, "user")).to_have_text(["hang"])


async def test_a_side_answer_does_not_hide_the_pending_one(stage: Stage, page: Page) -> None:
    await send(page, "hang")
    await expect(page.locator("#thinking")).to_be_visible()
    await stage.post(chat_of(page), "💬 by the way")
    await expect(words(page, "answer")).to_have_text(["💬 by the way"])
    await expect(page.locator("#thinking")).to_have_text("Thinking…")
    await expect(page.locator("#thinking")).to_be_visible()
    await expect(page.get_by_role("button", name="Stop the answer")).to_be_visible()


async def test_the_draft_of_a_stopped_answer_disappears(page: Page) -> None:
    await send(page, "half this will never be finished, whatever happens")
    await expect(page.locator("#live .row")).to_be_visible()
    await page.get_by_role("button", name="Stop the answer").click()
    await expect(page.locator("#live .row")).to_have_count(0)


async def test_only_the_last_answer_can_be_retried(page: Page) -> None:
    await send(page, "say one")
    await expect(rows(page, "answer")).to_have_count(1)
    await send(page, "say two")
    await expect(rows(page, "answer")).to_have_count(2)
    retry = page.get_by_role("button", name="Try again")
    await expect(retry).to_have_count(1)
    await retry.click()
    await expect(words(page, "answer")).to_have_text(["one", "two", "two"])
    await expect(words(page, "user")).to_have_text(["say one", "say two"])


async def test_notice_buttons_can_be_pressed_once(page: Page) -> None:
    await send(page, "notice I was restarted.")
    await page.get_by_role("button", name="Continue").click()
    await expect(rows(page, "notice")).to_contain_text(["restarted", "You pressed /resume."])
    await expect(page.get_by_role("button", name="Start over")).to_be_disabled()


async def test_an_outdated_question_does_not_block_the_page(stage: Stage, page: Page) -> None:
    await send(page, "say one")
    await expect(rows(page, "answer")).to_have_count(1)
    allow = Button("Allow", "approve:p_1")
    await stage._post(chat_of(page), "p_1", "🔐 May I use **pay**?", "notice", (allow,))
    await expect(page.get_by_role("button", name="Allow")).to_be_visible()
    await expect(page.locator("#thinking")).to_be_hidden()
    await expect(page).to_have_title("say one · Holdfast")


async def test_news_in_another_conversation_is_marked(stage: Stage, page: Page) -> None:
    await send(page, "say one")
    await expect(rows(page, "answer")).to_have_count(1)
    chat = chat_of(page)
    await expect(page.locator("#chats a")).to_have_count(1)
    await page.get_by_role("link", name="New conversation").click()
    await expect(page.locator("#empty")).to_be_visible()
    await stage.post(chat, "a reminder")
    await expect(page.locator("#chats a.fresh")).to_have_count(1)
    await expect(page).to_have_title("(1) New conversation · Holdfast")
    await page.locator("#chats a").click()
    await expect(words(page, "answer")).to_have_text(["one", "a reminder"])
    await expect(page.locator("#chats a.fresh")).to_have_count(0)
