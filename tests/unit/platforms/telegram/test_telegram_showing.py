"""What ops look like on Telegram, and what becomes of refusals and broken connections."""

import asyncio
from pathlib import Path

import pytest

from platforms.core.contract import (
    Address,
    Ask,
    Button,
    Delete,
    Draft,
    Edit,
    Live,
    Post,
    React,
    Typing,
    Upload,
)
from platforms.core.errors import (
    ChatGone,
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from platforms.telegram.adapter import TelegramAdapter
from tests.fakes.telegram.faults import (
    Fault,
    cut_after,
    cut_before,
    failed,
    gateway_page,
    refused,
    too_many,
)
from tests.fakes.telegram.server import TelegramServer, serving
from tests.fakes.telegram.stage import telegram

ME, GROUP = Address("telegram", "1001"), Address("telegram", "-1001234")
TABLE = "# Costs\n\n| a | b |\n|---|---|\n| 1 | **2** |"


async def test_a_table_is_shown_as_one(adapter: TelegramAdapter, server: TelegramServer) -> None:
    await adapter.deliver(Post("a.0", ME, TABLE))
    (shown,) = server.messages(1001)
    assert "<table bordered><tr><th>a</th>" in shown.html


async def test_words_alone_are_sent_so_that_every_client_shows_them(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    await adapter.deliver(Post("a.0", ME, "Some **words**"))
    (shown,) = server.messages(1001)
    assert shown.text == "Some words"
    assert [each["type"] for each in shown.entities] == ["bold"]
    assert server.called("sendMessage")[0]["link_preview_options"] == {"is_disabled": True}


async def test_a_server_that_does_not_know_rich_messages_is_asked_once() -> None:
    async with serving(rich=False) as server, telegram(server) as adapter:
        for number in range(3):
            await adapter.deliver(Post(f"a.{number}", ME, TABLE))
        assert len(server.called("sendRichMessage")) == 1
        assert all("│" in shown.text for shown in server.messages(1001))


async def test_what_is_refused_in_one_form_is_shown_in_a_plainer_one(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    server.fail("sendRichMessage", refused("can't parse rich message"))
    await adapter.deliver(Post("a.0", ME, TABLE))
    assert "pre" in {each["type"] for each in server.messages(1001)[0].entities}
    server.fail("sendRichMessage", refused("can't parse rich message"))
    server.fail("sendMessage", refused("can't parse entities"))
    await adapter.deliver(Post("b.0", ME, TABLE))
    assert server.messages(1001)[1].text == TABLE
    assert server.messages(1001)[1].entities == []


async def test_a_table_that_grows_too_long_when_aligned_is_not_aligned() -> None:
    row = "| " + "x" * 400 + " | y |\n"
    short = "| a | b |\n" * 60
    async with serving(rich=False) as server, telegram(server) as adapter:
        await adapter.deliver(Post("a.0", ME, "| h | i |\n|---|---|\n" + row + short))
        (shown,) = server.messages(1001)
    assert "a | b" in shown.text


async def test_an_edit_that_changes_nothing_has_done_its_work(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    message = (await adapter.deliver(Post("a.0", ME, "Same"))).message
    await adapter.deliver(Edit("a.0.e", ME, message=message, text="Same"))
    assert len(server.called("editMessageText")) == 1


async def test_an_edit_may_turn_words_into_a_table_and_back(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    message = (await adapter.deliver(Post("a.0", ME, "First"))).message
    await adapter.deliver(Edit("a.0.e", ME, message=message, text=TABLE))
    assert "<table" in server.messages(1001)[0].html
    await adapter.deliver(Edit("a.0.e", ME, message=message, text="Last"))
    assert server.screen(1001) == ["Last"]


async def test_buttons_stand_below_and_go_with_an_edit(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    buttons = (Button("Approve", "approve:1"), Button("Deny", "deny:1"))
    message = (await adapter.deliver(Ask("a.0", ME, text="May I?", buttons=buttons))).message
    (shown,) = server.messages(1001)
    assert shown.actions == ["approve:1", "deny:1"]
    assert len(shown.buttons) == 1
    await adapter.deliver(Edit("a.0.e", ME, message=message, text="Done"))
    assert server.messages(1001)[0].actions == []


async def test_a_button_that_carries_too_much_is_refused_before_it_is_sent(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    with pytest.raises(Rejected, match="64 bytes"):
        await adapter.deliver(Ask("a.0", ME, text="May I?", buttons=(Button("Yes", "ä" * 33),)))
    assert server.messages(1001) == []


async def test_an_answer_hangs_below_its_question_in_its_topic(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    topic = Address("telegram", "-1001234", thread="7")
    await adapter.deliver(Post("a.0", topic, "Yes", reply_to="55"))
    await adapter.deliver(Post("b.0", topic, TABLE, reply_to="56"))
    first, second = server.messages(-1001234)
    assert (first.thread, first.reply_to) == (7, 55)
    assert (second.thread, second.reply_to) == (7, 56)


async def test_a_draft_can_be_stopped_and_says_what_is_going_on(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    await adapter.deliver(Draft("a.p", ME, draft="a", text="So far", status="reading a file"))
    assert server.screen(1001) == ["So far\n\n*reading a file*"]
    await adapter.deliver(Draft("a.p", ME, draft="a", text=TABLE))
    assert len(server.room(1001).drafts) == 1  # the same draft, changed
    assert server.called("sendRichMessageDraft")[0]["can_stop"] is True


async def test_chats_say_what_they_can_show(adapter: TelegramAdapter) -> None:
    assert adapter.capabilities_in(ME).live is Live.DRAFT
    assert adapter.capabilities_in(GROUP).live is Live.EDIT
    with pytest.raises(Rejected):
        await adapter.deliver(Draft("a.p", GROUP, draft="a", text="So far"))


async def test_a_receipt_is_a_sign_that_telegram_knows(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    for emoji, shown in (("👀", "👀"), ("✅", "👍"), ("❌", "👎"), ("", "")):
        await adapter.deliver(React("a.r", ME, "5", emoji))
        assert server.room(1001).reactions[5] == shown


async def test_typing_and_deleting(adapter: TelegramAdapter, server: TelegramServer) -> None:
    await adapter.deliver(Typing("a.t", ME))
    assert server.room(1001).typing
    message = (await adapter.deliver(Post("a.0", ME, "Oops"))).message
    for _ in range(2):  # what is gone need not be deleted
        await adapter.deliver(Delete("a.0.d", ME, message))
    assert server.screen(1001) == []


# --- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "media_type", "kind"),
    [
        ("a.png", "image/png", "photo"),
        ("a.pdf", "application/pdf", "document"),
        ("a.ogg", "audio/ogg", "voice"),
        ("a.mp3", "audio/mpeg", "audio"),
        ("a.mp4", "video/mp4", "video"),
    ],
)
async def test_files_are_sent_as_what_they_are(
    adapter: TelegramAdapter,
    server: TelegramServer,
    tmp_path: Path,
    name: str,
    media_type: str,
    kind: str,
) -> None:
    path = tmp_path / name
    path.write_bytes(b"content" * 100_000)
    op = Upload("a.0", ME, path=str(path), name=name, media_type=media_type, caption="See **this**")
    receipt = await adapter.deliver(op)
    (shown,) = server.messages(1001)
    assert (shown.file, shown.name, shown.markdown) == (kind, name, "See **this**")
    assert shown.content == path.read_bytes()
    assert receipt.message == str(shown.id)


async def test_a_picture_that_is_none_is_sent_as_a_file(
    adapter: TelegramAdapter, server: TelegramServer, tmp_path: Path
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"not a picture at all")
    await adapter.deliver(Upload("a.0", ME, path=str(path), name="a.png", media_type="image/png"))
    (shown,) = server.messages(1001)
    assert (shown.file, shown.content) == ("document", path.read_bytes())


async def test_a_caption_that_is_too_long_does_not_keep_the_file_back(
    adapter: TelegramAdapter, server: TelegramServer, tmp_path: Path
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"x")
    await adapter.deliver(
        Upload(
            "a.0",
            ME,
            path=str(path),
            name="a.pdf",
            media_type="application/pdf",
            caption="😀" * 1000,
        )
    )
    (shown,) = server.messages(1001)
    assert shown.text.endswith("😀…")


async def test_a_file_that_is_not_there_is_refused(adapter: TelegramAdapter) -> None:
    with pytest.raises(Rejected, match=r"a\.pdf cannot be read"):
        await adapter.deliver(
            Upload("a.0", ME, path="/nowhere/a.pdf", name="a.pdf", media_type="application/pdf")
        )


async def test_a_large_upload_does_not_hold_up_other_chats(
    adapter: TelegramAdapter, server: TelegramServer, tmp_path: Path
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"x" * 20_000_000)
    loop = asyncio.get_running_loop()
    await adapter.deliver(Post("w.0", Address("telegram", "2002"), "warm"))
    async with asyncio.TaskGroup() as group:
        upload = group.create_task(
            adapter.deliver(
                Upload(
                    "a.0", ME, path=str(path), name="a.bin", media_type="application/octet-stream"
                )
            )
        )
        await asyncio.sleep(0)
        waits = []
        for number in range(20):
            began = loop.time()
            await adapter.deliver(Post(f"b.{number}", Address("telegram", "2002"), f"{number}"))
            waits.append(loop.time() - began)
        await upload
    assert len(server.messages(1001)[0].content) == 20_000_000
    assert sorted(waits)[len(waits) // 2] < 0.5


# --- what goes wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (too_many(7), Unavailable),
        (failed(500), Unavailable),
        (failed(500, "Internal Server Error: restart"), Unconfirmed),
        (gateway_page(), Unconfirmed),
        (cut_before(), Unconfirmed),
        (cut_after(), Unconfirmed),
        (Fault(413, "Request Entity Too Large"), Rejected),
        (Fault(401, "Unauthorized"), Unauthorized),
        (Fault(403, "Forbidden: bot was blocked by the user"), ChatGone),
        (Fault(400, "Bad Request: chat not found"), ChatGone),
        (Fault(400, "Bad Request: not enough rights to send text messages"), ChatGone),
        (Fault(400, "Bad Request: message thread not found"), Rejected),
    ],
    ids=lambda value: getattr(value, "description", "") or getattr(value, "__name__", "cut"),
)
async def test_what_goes_wrong_says_what_to_do_about_it(
    adapter: TelegramAdapter, server: TelegramServer, fault: Fault, error: type[PlatformError]
) -> None:
    server.fail("sendMessage", fault)
    with pytest.raises(PlatformError) as caught:
        await adapter.deliver(Post("a.0", ME, "Hello"))
    assert type(caught.value) is error
    assert len(server.called("sendMessage")) == 1
    if fault.retry_after:
        assert isinstance(caught.value, Unavailable)
        assert caught.value.retry_after == fault.retry_after
        server.room(1001).blocked_until = 0.0


async def test_the_same_form_is_not_tried_twice(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    server.fail("sendMessage", refused("something is wrong with this"))
    with pytest.raises(Rejected):
        await adapter.deliver(Post("a.0", ME, "Hello"))
    assert len(server.called("sendMessage")) == 1


async def test_no_error_tells_the_token(adapter: TelegramAdapter, server: TelegramServer) -> None:
    for fault in (cut_after(), gateway_page(), Fault(401, "Unauthorized"), failed()):
        server.fail("sendMessage", fault)
        with pytest.raises(PlatformError) as caught:
            await adapter.deliver(Post("a.0", ME, "Hello"))
        assert "AAFake" not in str(caught.value)


async def test_when_telegram_cannot_be_reached_nothing_was_sent() -> None:
    async with serving() as other, telegram(other) as left:
        await left.deliver(Post("a.0", ME, "Hello"))
    with pytest.raises(Unavailable, match="cannot be reached"):
        await left.deliver(Post("b.0", ME, "Hello"))
    await left.aclose()


async def test_a_group_that_became_a_supergroup_is_followed(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    server.room(-55).moved_to = -10055
    for number in range(2):
        await adapter.deliver(Post(f"a.{number}", Address("telegram", "-55"), f"{number}"))
    assert server.screen(-10055) == ["0", "1"]
    assert [each["chat_id"] for each in server.called("sendMessage")] == [-55, -10055, -10055]


async def test_an_edit_of_what_is_gone_is_not_tried_in_other_forms(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    with pytest.raises(Rejected, match="not found"):
        await adapter.deliver(Edit("a.0.e", ME, message="999", text=TABLE))
    assert len(server.called("editMessageText")) == 1


async def test_a_message_that_cannot_become_rich_is_not_asked_to_again(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    message = (await adapter.deliver(Post("a.0", ME, "First"))).message
    server.fail("editMessageText", refused("message can't become a rich one"))
    for number in range(3):
        await adapter.deliver(Edit("a.0.e", ME, message=message, text=f"{TABLE}\n{number}"))
    assert len(server.called("editMessageText")) == 1 + 3
