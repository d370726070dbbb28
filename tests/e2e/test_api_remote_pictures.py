"""Pictures that a request gives by address."""

import base64
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.settings import HttpSettings
from sessions.values.secret import Secret
from tests.e2e.api_kit import KEY, served
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer
from tests.fakes.shelf import PNG, Shelf, answer, leads_to

WEBP = b"RIFF\x10\x00\x00\x00WEBPVP8 " + bytes(40)
PARAM = "messages[0].content[0].image_url.url"


def looking(*urls: str, text: str = "what is this?") -> Any:
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [*shown, {"type": "text", "text": text}]}]


def data_url(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def fetching(*places: str) -> HttpSettings:
    return HttpSettings(
        port=0,
        api_key=Secret(KEY),
        ui=False,
        fetch_pictures=True,
        fetch_pictures_from=places,
    )


async def test_pictures_given_by_address_reach_the_model(tmp_path: Path) -> None:
    """The type is detected from the content, whatever the server says."""
    held = {"/a": answer(PNG, "text/plain"), "/b": leads_to("/c"), "/c": answer(WEBP)}
    async with (
        Shelf(held).open() as shelf,
        ModelServer(ok("A cat.")) as model,
        served(tmp_path, model, http=fetching(shelf.place())) as api,
    ):
        base = f"http://{shelf.place()}"
        said = [
            *looking(f"{base}/a", text="first"),
            {"role": "assistant", "content": "a dog"},
            *looking(f"{base}/b", data_url(PNG, "image/png"), text="second"),
        ]
        given = await api.chat.create(model="scripted", messages=said)
        assert given.choices[0].message.content == "A cat."
        shown = [
            [part["image_url"]["url"] for part in row["content"] if part["type"] == "image_url"]
            for row in await api.kit.asked(1)
            if row["role"] == "user"
        ]
        png, webp = data_url(PNG, "image/png"), data_url(WEBP, "image/webp")
        assert shown == [[png], [webp, png]]


async def test_responses_accept_pictures_given_by_address(tmp_path: Path) -> None:
    async with (
        Shelf({"/a": answer(PNG)}).open() as shelf,
        ModelServer(ok("A cat.")) as model,
        served(tmp_path, model, http=fetching(shelf.place())) as api,
    ):
        shown = {"type": "input_image", "image_url": f"http://{shelf.place()}/a", "detail": "auto"}
        asked: Any = [{"role": "user", "content": [shown]}]
        given = await api.client.responses.create(model="scripted", input=asked)
        assert given.output_text == "A cat."
        (row,) = await api.kit.asked(1)
        assert data_url(PNG, "image/png") in str(row)


async def test_no_picture_is_fetched_by_default(tmp_path: Path) -> None:
    async with (
        Shelf({"/a": answer(PNG)}).open() as shelf,
        ModelServer() as model,
        served(tmp_path, model) as api,
    ):
        with pytest.raises(openai.BadRequestError, match=r"http\.fetch_pictures") as error:
            await api.chat.create(model="scripted", messages=looking(f"http://{shelf.place()}/a"))
        assert error.value.param == PARAM
        shown = {"type": "input_image", "image_url": f"http://{shelf.place()}/a", "detail": "auto"}
        asked: Any = [{"role": "user", "content": [shown]}]
        with pytest.raises(openai.BadRequestError, match="does not fetch pictures") as error:
            await api.client.responses.create(model="scripted", input=asked)
        assert error.value.param == "input[0].content[0].image_url"
        assert shelf.met == 0


async def test_unusable_remote_picture_is_refused_before_the_request_is_stored(
    tmp_path: Path,
) -> None:
    held = {
        "/page": answer(b"<html>", "image/png"),
        "/svg": answer(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
        "/large": answer(PNG, content_length="16000000"),
        "/inside": leads_to("http://169.254.169.254/latest/meta-data"),
        "/half": answer(bytes([0x89]) + PNG[1:] + bytes(7_600_000)),
    }
    async with (
        Shelf(held).open() as shelf,
        ModelServer() as model,
        served(tmp_path, model, http=fetching(shelf.place())) as api,
    ):
        base = f"http://{shelf.place()}"
        refused = {
            (f"{base}/page",): "not a JPEG",
            (f"{base}/svg",): "not a JPEG",
            (f"{base}/large",): "too large",
            (f"{base}/nothing",): "answered 404",
            (f"{base}/inside",): "not on the public internet",
            (f"{base}/half", f"{base}/half"): "too large",  # in total
            ("http://127.0.0.1/a.png",): "not on the public internet",
            ("http://localhost/a.png",): "not on the public internet",
            (f"http://127.0.0.2:{shelf.port}/page",): "not on the public internet",
            ("ftp://example.org/a.png",): "nor an address that begins",
            ("cat.png",): "nor an address that begins",
        }
        for urls, why in refused.items():
            with pytest.raises(openai.BadRequestError, match=why) as error:
                await api.chat.create(model="scripted", messages=looking(*urls))
            assert error.value.code == "invalid_image_url", urls
            assert error.value.param == PARAM.replace("[0].i", f"[{len(urls) - 1}].i"), urls
        assert await api.sessions() == []
        assert model.requests == []


async def test_repeated_request_is_answered_without_fetching_again(tmp_path: Path) -> None:
    async with (
        Shelf({"/a": answer(PNG)}).open() as shelf,
        ModelServer(ok("A cat.")) as model,
        served(tmp_path, model, http=fetching(shelf.place())) as api,
    ):
        for _ in range(2):
            status, _, given = await api.wire.send(
                "POST",
                "/chat/completions",
                json={"messages": looking(f"http://{shelf.place()}/a")},
                headers={"idempotency-key": "k"},
            )
            assert (status, given["choices"][0]["message"]["content"]) == (200, "A cat.")
            shelf.held.clear()
        assert shelf.met == 1
