"""Tests of sending: how each op appears on Telegram, and how refusals and failures are handled."""

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
from tests.fakes.telegram.kit import telegram
from tests.fakes.telegram.server import TelegramServer, serving

ME, GROUP = Address("telegram", "1001"), Address("telegram", "-1001234")
TABLE = "# Costs\n\n| a | b |\n|---|---|\n| 1 | **2** |"


async def test_a_table_is_sent_as_a_rich_message(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    await adapter.deliver(Post("a.0", ME, TABLE))
    (shown,) = server.messages(1001)
    assert "<table bordered><tr><th>a</th>" in shown.html


async def test_simple_text_is_sent_with_entities(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    await adapter.deliver(Post("a.0", ME, "Some **words**"))
    (shown,) = server.messages(1001)
    assert shown.text == "Some words"
    assert [each["type"] for each in shown.entities] == ["bold"]
    assert server.called("sendMessage")[0]["link_preview_options"] == {"is_disabled": True}


async def test_a_server_without_rich_messages_is_tried_once() -> None:
    async with serving(rich=False) as server, telegram(server) as adapter:
        for number in range(3):
            await adapter.deliver(Post(f"a.{number}", ME, TABLE))
        assert len(server.called("sendRichMessage")) == 1
        assert all("│" in shown.text for shown in server.messages(1001))


async def test_a_refused_form_falls_back_to_a_plainer_one(
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


async def test_a_table_too_long_when_aligned_is_sent_compact() -> None:
    row = "| " + "x" * 400 + " | y |\n"
    short = "| a | b |\n" * 60
    async with serving(rich=False) as server, telegram(server) as adapter:
        await adapter.deliver(Post("a.0", ME, "| h | i |\n|---|---|\n" + row + short))
        (shown,) = server.messages(1001)
    assert "a | b" in shown.text


async def test_an_edit_without_changes_succeeds(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    message = (await adapter.deliver(Post("a.0", ME, "Same"))).message
    await adapter.deliver(Edit("a.0.e", ME, message=message, text="Same"))
    assert len(server.called("editMessageText")) == 1


async def test_an_edit_can_turn_text_into_a_table_and_back(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    message = (await adapter.deliver(Post("a.0", ME, "First"))).message
    await adapter.deliver(Edit("a.0.e", ME, message=message, text=TABLE))
    assert "<table" in server.messages(1001)[0].html
    await adapter.deliver(Edit("a.0.e", ME, message=message, text="Last"))
    assert server.screen(1001) == ["Last"]


async def test_buttons_are_shown_and_removed_by_an_edit(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    buttons = (Button("Approve", "approve:1"), Button("Deny", "deny:1"))
    message = (await adapter.deliver(Ask("a.0", ME, text="May I?", buttons=buttons))).message
    (shown,) = server.messages(1001)
    assert shown.actions == ["approve:1", "deny:1"]
    assert len(shown.buttons) == 1
    await adapter.deliver(Edit("a.0.e", ME, message=message, text="Done"))
    assert server.messages(1001)[0].actions == []


async def test_a_button_with_too_much_data_is_rejected_before_sending(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    with pytest.raises(Rejected, match="64 bytes"):
        await adapter.deliver(Ask("a.0", ME, text="May I?", buttons=(Button("Yes", "ä" * 33),)))
    assert server.messages(1001) == []


async def test_an_answer_replies_to_its_question_in_the_same_topic(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    topic = Address("telegram", "-1001234", thread="7")
    await adapter.deliver(Post("a.0", topic, "Yes", reply_to="55"))
    await adapter.deliver(Post("b.0", topic, TABLE, reply_to="56"))
    first, second = server.messages(-1001234)
    assert (first.thread, first.reply_to) == (7, 55)
    assert (second.thread, second.reply_to) == (7, 56)


async def test_a_draft_has_a_stop_button_and_shows_the_status(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    await adapter.deliver(Draft("a.p", ME, draft="a", text="So far", status="reading a file"))
    assert server.screen(1001) == ["So far\n\n*reading a file*"]
    await adapter.deliver(Draft("a.p", ME, draft="a", text=TABLE))
    assert len(server.room(1001).drafts) == 1  # the draft was updated
    assert server.called("sendRichMessageDraft")[0]["can_stop"] is True


async def test_only_private_chats_show_drafts(adapter: TelegramAdapter) -> None:
    assert adapter.capabilities_in(ME).live is Live.DRAFT
    assert adapter.capabilities_in(GROUP).live is Live.EDIT
    with pytest.raises(Rejected):
        await adapter.deliver(Draft("a.p", GROUP, draft="a", text="So far"))


async def test_receipts_are_replaced_by_reactions_telegram_accepts(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    for emoji, shown in (("👀", "👀"), ("✅", "👍"), ("❌", "👎"), ("", "")):
        await adapter.deliver(React("a.r", ME, "5", emoji))
        assert server.room(1001).reactions[5] == shown


async def test_typing_is_shown_and_deleting_twice_succeeds(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    await adapter.deliver(Typing("a.t", ME))
    assert server.room(1001).typing
    message = (await adapter.deliver(Post("a.0", ME, "Oops"))).message
    for _ in range(2):  # the second delete finds no message
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
async def test_files_are_sent_as_the_kind_of_their_media_type(
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


async def test_an_invalid_picture_is_sent_as_a_document(
    adapter: TelegramAdapter, server: TelegramServer, tmp_path: Path
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"not a picture at all")
    await adapter.deliver(Upload("a.0", ME, path=str(path), name="a.png", media_type="image/png"))
    (shown,) = server.messages(1001)
    assert (shown.file, shown.content) == ("document", path.read_bytes())


async def test_a_caption_over_the_limit_is_cut(
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


async def test_a_missing_file_is_rejected(adapter: TelegramAdapter) -> None:
    with pytest.raises(Rejected, match=r"a\.pdf cannot be read"):
        await adapter.deliver(
            Upload("a.0", ME, path="/nowhere/a.pdf", name="a.pdf", media_type="application/pdf")
        )


async def test_a_large_upload_does_not_delay_other_chats(
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


# --- failures ----------------------------------------------------------------------------------


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
async def test_each_failure_becomes_its_contract_error(
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
        server.room(1001).blocked = None


async def test_a_refused_plain_text_is_not_sent_again(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    server.fail("sendMessage", refused("something is wrong with this"))
    with pytest.raises(Rejected):
        await adapter.deliver(Post("a.0", ME, "Hello"))
    assert len(server.called("sendMessage")) == 1


async def test_no_error_contains_the_token(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    for fault in (cut_after(), gateway_page(), Fault(401, "Unauthorized"), failed()):
        server.fail("sendMessage", fault)
        with pytest.raises(PlatformError) as caught:
            await adapter.deliver(Post("a.0", ME, "Hello"))
        assert "AAFake" not in str(caught.value)


async def test_an_unreachable_telegram_is_unavailable() -> None:
    async with serving() as other, telegram(other) as left:
        await left.deliver(Post("a.0", ME, "Hello"))
    with pytest.raises(Unavailable, match="cannot be reached"):
        await left.deliver(Post("b.0", ME, "Hello"))
    await left.aclose()


async def test_posts_follow_a_group_that_became_a_supergroup(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    server.room(-55).moved_to = -10055
    for number in range(2):
        await adapter.deliver(Post(f"a.{number}", Address("telegram", "-55"), f"{number}"))
    assert server.screen(-10055) == ["0", "1"]
    assert [each["chat_id"] for each in server.called("sendMessage")] == [-55, -10055, -10055]


async def test_an_edit_of_a_deleted_message_is_not_retried_in_other_forms(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    with pytest.raises(Rejected, match="not found"):
        await adapter.deliver(Edit("a.0.e", ME, message="999", text=TABLE))
    assert len(server.called("editMessageText")) == 1


async def test_a_message_that_refused_the_rich_form_is_edited_as_text(
    adapter: TelegramAdapter, server: TelegramServer
) -> None:
    message = (await adapter.deliver(Post("a.0", ME, "First"))).message
    server.fail("editMessageText", refused("message can't become a rich one"))
    for number in range(3):
        await adapter.deliver(Edit("a.0.e", ME, message=message, text=f"{TABLE}\n{number}"))
    assert len(server.called("editMessageText")) == 1 + 3
