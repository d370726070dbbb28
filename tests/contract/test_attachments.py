"""What people attach reaches the workspace, from each platform, or it is said why not."""

import asyncio
import contextlib
import os
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.media.fetch import INTERNAL_ERROR, NO_TRANSCRIPTION, AttachmentFetcher, FetchLimits
from gateway.media.incoming import plan_attachments
from gateway.media.speech import RecordingReader, SpeechToText, TranscriptionFailed
from platforms.core.contract import Address, File
from sessions.records import Attachment
from sessions.values.clock import SystemClock
from tests.fakes.downloads import Going
from tests.fakes.memory import MemoryAdapter
from tests.fakes.senders import PLATFORMS, Sender, Sent

pytestmark = pytest.mark.quick

JPEG = b"\xff\xd8\xff\xe0"
PNG = b"\x89PNG\r\n\x1a\n"
CONTENT = bytes(range(256)) * 4_000  # about a megabyte
BOUNDS = FetchLimits(
    max_bytes=2_000_000,
    idle_seconds=0.3,
    file_seconds=5.0,
    retry_delay_seconds=0.01,
    reserved_bytes=0,
)


@pytest.fixture(params=PLATFORMS)
async def person(request: pytest.FixtureRequest) -> AsyncIterator[Sender]:
    async with PLATFORMS[request.param]() as sender:
        yield sender


async def received(
    person: Sender,
    workspace: Path,
    sent: Sent,
    bounds: FetchLimits = BOUNDS,
    listener: SpeechToText | None = None,
) -> Attachment:
    """Send a file and have it fetched; gives what came of it."""
    event = await person.send(sent)
    service = AttachmentFetcher(lambda _: person.adapter, SystemClock(), listener, bounds)
    files = plan_attachments("i_0123456789abcdef", event.parts)
    (file,) = await service.fetch_all(files, event.address, workspace)
    return file


def left(workspace: Path) -> list[str]:
    """What lies in the workspace, but for our mark."""
    return sorted(
        str(each.relative_to(workspace))
        for each in workspace.rglob("*")
        if each.is_file() and each.name != ".holdfast-received"
    )


class Ears:
    """Somebody who listens."""

    def __init__(self, heard: str | Exception) -> None:
        self._heard = heard
        self.listened: list[tuple[bytes, str]] = []

    async def transcribe(self, read_recording: RecordingReader, media_type: str, size: int) -> str:
        self.listened.append((await read_recording(), media_type))
        if isinstance(self._heard, Exception):
            raise self._heard
        return self._heard

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("kind", ["photo", "document", "voice"])
async def test_what_is_attached_lies_in_the_workspace_as_it_was(
    person: Sender, tmp_path: Path, kind: str
) -> None:
    content = JPEG + CONTENT if kind == "photo" else CONTENT
    sent = Sent(kind, content)
    file = await received(person, tmp_path / "w", sent)
    assert file.fetched
    assert (file.media_type, file.size) == (sent.media_type, len(content))
    assert file.voice is (kind == "voice")
    assert file.trouble == (NO_TRANSCRIPTION if kind == "voice" else "")
    assert (tmp_path / "w" / file.path).read_bytes() == content
    assert left(tmp_path / "w") == [file.path]


@pytest.mark.parametrize(
    ("content", "kind"),
    [(PNG, "image/png"), (JPEG, "image/jpeg"), (b"%PDF-1.7", "application/octet-stream")],
    ids=["another kind of picture", "as it says", "no picture at all"],
)
async def test_what_a_picture_is_shows_in_it_and_not_in_what_it_is_called(
    person: Sender, tmp_path: Path, content: bytes, kind: str
) -> None:
    file = await received(person, tmp_path, Sent("photo", content))
    assert (file.fetched, file.media_type) == (True, kind)


async def test_a_voice_message_is_listened_to_and_a_piece_of_music_is_not(
    person: Sender, tmp_path: Path
) -> None:
    ears = Ears("Buy milk.")
    file = await received(person, tmp_path, Sent("voice", b"Ogg"), listener=ears)
    assert (file.fetched, file.heard, file.trouble) == (True, "Buy milk.", "")
    assert ears.listened == [(b"Ogg", "audio/ogg")]
    music = await received(person, tmp_path, Sent("document", b"Ogg", "a.ogg"), listener=ears)
    assert (music.fetched, music.heard, len(ears.listened)) == (True, "", 1)


@pytest.mark.parametrize(
    "error", [TranscriptionFailed("it hums"), OSError("a bug")], ids=["said", "a bug"]
)
async def test_what_cannot_be_heard_is_still_a_file(
    person: Sender, tmp_path: Path, error: Exception
) -> None:
    file = await received(person, tmp_path, Sent("voice", b"Ogg"), listener=Ears(error))
    assert file.fetched
    assert not file.heard
    assert "it hums" in file.trouble or file.trouble == INTERNAL_ERROR
    assert (tmp_path / file.path).read_bytes() == b"Ogg"


async def test_what_is_there_is_not_asked_for_again(person: Sender, tmp_path: Path) -> None:
    await received(person, tmp_path, Sent("document", CONTENT))
    begun = person.downloads.begun
    again = await received(person, tmp_path, Sent("document", b"another"))
    assert (again.fetched, again.size, person.downloads.begun) == (True, len(CONTENT), begun)


async def test_a_file_that_is_gone_is_said_to_be(person: Sender, tmp_path: Path) -> None:
    event = await person.send(Sent("document", CONTENT))
    person.forget()
    service = AttachmentFetcher(lambda _: person.adapter, SystemClock(), None, BOUNDS)
    (file,) = await service.fetch_all(
        plan_attachments("i_0", event.parts), event.address, tmp_path / "w"
    )
    assert not file.fetched
    assert file.trouble
    assert left(tmp_path / "w") == []


async def test_a_download_that_is_cut_begins_again(person: Sender, tmp_path: Path) -> None:
    person.downloads.plan(Going(after=400_000, cut=True), Going(status=500))
    file = await received(person, tmp_path, Sent("document", CONTENT))
    assert (file.fetched, person.downloads.begun) == (True, 3)
    assert (tmp_path / file.path).read_bytes() == CONTENT
    assert left(tmp_path) == [file.path]


async def test_a_download_that_is_always_cut_is_given_up(person: Sender, tmp_path: Path) -> None:
    person.downloads.plan(*[Going(after=400_000, cut=True)] * 5)
    file = await received(person, tmp_path, Sent("document", CONTENT))
    assert (file.fetched, person.downloads.begun) == (False, 3)
    assert file.trouble
    assert left(tmp_path) == []


async def test_a_silent_server_is_given_up(person: Sender, tmp_path: Path) -> None:
    gate = asyncio.Event()
    person.downloads.plan(Going(after=100_000, gate=gate))
    file = await received(person, tmp_path, Sent("document", CONTENT))
    gate.set()
    assert not file.fetched
    assert "no data arrived for 0.3 s" in file.trouble
    assert left(tmp_path) == []


async def test_a_file_that_takes_too_long_is_given_up(person: Sender, tmp_path: Path) -> None:
    gate = asyncio.Event()
    person.downloads.plan(Going(after=100_000, gate=gate))
    bounds = FetchLimits(idle_seconds=60.0, file_seconds=0.3, reserved_bytes=0)
    file = await received(person, tmp_path, Sent("document", CONTENT), bounds)
    gate.set()
    assert "it did not arrive within 0.3 s" in file.trouble
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("claims", "said", "asked"),
    [
        pytest.param(None, "too large (2.5 MB, at most 2 MB)", 0, id="says so"),
        pytest.param(10, "too large (more than 2 MB, at most 2 MB)", 1, id="lies about it"),
    ],
)
async def test_a_file_that_is_too_large_is_not_kept(
    person: Sender, tmp_path: Path, claims: int | None, said: str, asked: int
) -> None:
    sent = Sent("document", b"x" * 2_500_000, claims=claims)
    file = await received(person, tmp_path, sent)
    assert (file.trouble, person.downloads.begun) == (said, asked)
    assert left(tmp_path) == []


@pytest.mark.parametrize("where", ["received", "received/6789abcdef", "the file"])
async def test_a_link_in_the_way_is_not_followed(
    person: Sender, tmp_path: Path, where: str
) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "w"
    outside.mkdir()
    event = await person.send(Sent("document", CONTENT))
    (file,) = plan_attachments("i_0123456789abcdef", event.parts)
    link = workspace / (file.path if where == "the file" else where)
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "target" if where == "the file" else outside)
    service = AttachmentFetcher(lambda _: person.adapter, SystemClock(), None, BOUNDS)
    (file,) = await service.fetch_all([file], event.address, workspace)
    assert not file.fetched
    assert "link" in file.trouble or "not a folder" in file.trouble
    assert list(outside.iterdir()) == []


@contextlib.contextmanager
def no_file_over(size: int) -> Iterator[None]:
    """Let the system refuse to let files grow, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_write_that_fails_is_said_in_a_sentence(person: Sender, tmp_path: Path) -> None:
    event = await person.send(Sent("document", CONTENT))
    service = AttachmentFetcher(lambda _: person.adapter, SystemClock(), None, BOUNDS)
    files = plan_attachments("i_0", event.parts)
    with no_file_over(300_000):
        (file,) = await service.fetch_all(files, event.address, tmp_path)
    assert not file.fetched
    assert "File too large" in file.trouble
    assert left(tmp_path) == []


async def test_a_full_disk_is_said_in_a_sentence(person: Sender, tmp_path: Path) -> None:
    bounds = FetchLimits(reserved_bytes=1 << 62)
    file = await received(person, tmp_path, Sent("document", CONTENT), bounds)
    assert (file.trouble, left(tmp_path)) == ("the disk is full", [])


async def test_whoever_is_told_to_stop_leaves_nothing_behind(
    person: Sender, tmp_path: Path
) -> None:
    gate = asyncio.Event()
    person.downloads.plan(Going(after=600_000, gate=gate))
    event = await person.send(Sent("document", CONTENT))
    bounds = FetchLimits(idle_seconds=60.0, reserved_bytes=0)
    service = AttachmentFetcher(lambda _: person.adapter, SystemClock(), None, bounds)
    files = plan_attachments("i_0", event.parts)
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(service.fetch_all(files, event.address, tmp_path))
        await person.downloads.wait(1)
        began = loop.time()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert loop.time() - began < 0.3
    gate.set()
    assert left(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # noqa: PTH208


# --- many at once --------------------------------------------------------------------------------


class Slow(MemoryAdapter):
    """A platform whose files come when they are let; counts how many come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.now = self.most = 0

    async def fetch(self, file: File) -> AsyncIterator[bytes]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
            yield file.ref.encode()
        finally:
            self.now -= 1


async def test_only_a_few_files_come_at_once(tmp_path: Path) -> None:
    adapter = Slow()
    bounds = FetchLimits(max_concurrent=3, reserved_bytes=0)
    service = AttachmentFetcher(lambda _: adapter, SystemClock(), None, bounds)
    asyncio.get_running_loop().call_later(0.3, adapter.go.set)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for chat in range(4):
            parts = [File("a.txt", "text/plain", f"{chat} {number}") for number in range(5)]
            files = plan_attachments(f"i_000000000{chat}", parts)
            group.create_task(service.fetch_all(files, Address("memory", "1"), tmp_path))
    assert adapter.most == 3
    assert len(left(tmp_path)) == 20


async def test_a_bug_of_an_adapter_is_no_more_than_a_missing_file(tmp_path: Path) -> None:
    class Broken(MemoryAdapter):
        async def fetch(self, file: File) -> AsyncIterator[bytes]:
            if file.ref == "bad":
                raise KeyError(file.ref)
            yield b"fine"

    service = AttachmentFetcher(lambda _: Broken(), SystemClock(), None, BOUNDS)
    parts = [File("a", "x/y", "bad"), File("b", "x/y", "good")]
    bad, good = await service.fetch_all(
        plan_attachments("i_0", parts), Address("memory", "1"), tmp_path
    )
    assert (bad.trouble, bad.fetched, good.fetched) == (INTERNAL_ERROR, False, True)
