"""Log lines: format, context of the conversation, and masking of secrets."""

import asyncio
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from msgspec import Struct

from gateway.observe import log
from gateway.observe.redact import Redactor, find_secrets
from sessions.values.secret import Secret

TOKEN = "123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A stream in place of stderr; the logging configuration is restored afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in log.OWN_LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.captureWarnings(capture=False)


def configure(
    stream: io.StringIO,
    *,
    level: Literal["debug", "info", "warning", "error"] = "info",
    form: Literal["text", "json"] = "text",
    journal: bool = False,
) -> logging.Logger:
    redactor = Redactor([Secret("open sesame")])
    log.configure(redactor, level=level, log_format=form, stream=stream, journal=journal)
    return logging.getLogger("gateway.turns.host")


def test_line_has_time_level_logger_and_message(stream: io.StringIO) -> None:
    logger = configure(stream)
    record = logger.makeRecord(
        "gateway.turns.host", logging.INFO, "", 0, "turn %s began", ("t_1",), None
    )
    record.created = 1_795_000_000.123
    logger.handle(record)
    assert stream.getvalue() == "2026-11-18T11:06:40.123Z info gateway.turns.host: turn t_1 began\n"


def test_lines_have_the_context_of_their_conversation(stream: io.StringIO) -> None:
    logger = configure(stream)
    with log.log_context(chat="telegram:1001"):
        with log.log_context(session="s_1", turn="t_1"):
            logger.info("inner")
        logger.info("outer")
    logger.info("none")
    inner, outer, none = stream.getvalue().splitlines()
    assert inner.endswith("inner [chat=telegram:1001 session=s_1 turn=t_1]")
    assert outer.endswith("outer [chat=telegram:1001]")
    assert none.endswith("none")


async def test_concurrent_tasks_have_their_own_context(stream: io.StringIO) -> None:
    logger = configure(stream)
    both = asyncio.Barrier(2)

    async def work(chat: str) -> None:
        with log.log_context(chat=chat):
            await both.wait()
            logger.info("from %s", chat)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(work("a"))
        group.create_task(work("b"))
    lines = sorted(line.partition("turns.host: ")[2] for line in stream.getvalue().splitlines())
    assert lines == ["from a [chat=a]", "from b [chat=b]"]


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["d", "i", "w", "e"]),
        ("info", ["i", "w", "e"]),
        ("warning", ["w", "e"]),
        ("error", ["e"]),
    ],
)
def test_level_applies_to_own_loggers_and_libraries_only_warn(
    stream: io.StringIO, level: Literal["debug", "info", "warning", "error"], seen: list[str]
) -> None:
    for name in ("gateway.turns.host", "httpx2"):
        configure(stream, level=level)
        logger = logging.getLogger(name)
        logger.debug("d")
        logger.info("i")
        logger.warning("w")
        logger.error("e")
    said = [line.rpartition(": ")[2] for line in stream.getvalue().splitlines()]
    assert said == [*seen, "w", "e"]


def test_configuring_twice_does_not_duplicate_lines(stream: io.StringIO) -> None:
    configure(stream)
    configure(stream).info("once")
    assert stream.getvalue().count("once") == 1


def test_message_cannot_forge_a_log_line(stream: io.StringIO) -> None:
    configure(stream).info("said %s", "hello\n2026-11-18T00:00:00Z error gateway: forged\r!")
    assert len(stream.getvalue().splitlines()) == 1
    assert "hello\\n2026" in stream.getvalue()


def test_journal_lines_have_a_priority_and_no_time(stream: io.StringIO) -> None:
    logger = configure(stream, level="debug", journal=True)
    logger.debug("d")
    logger.info("i")
    logger.warning("w")
    logger.critical("c")
    try:
        raise RuntimeError("broken")  # noqa: EM101, TRY301 - raised to be logged
    except RuntimeError:
        logger.exception("e")
    lines = stream.getvalue().splitlines()
    assert [line[:3] for line in lines[:5]] == ["<7>", "<6>", "<4>", "<2>", "<3>"]
    assert lines[0] == "<7>gateway.turns.host: d"
    assert len(lines) > 6
    assert all(line.startswith("<3>") for line in lines[4:])


def test_json_lines_contain_all_fields(stream: io.StringIO) -> None:
    logger = configure(stream, form="json")
    with log.log_context(session="s_1"):
        logger.warning('a "quoted" %s', "word", extra={"attempt": 2, "message_id": "m"})
    line = json.loads(stream.getvalue())
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "gateway.turns.host",
        "message": 'a "quoted" word',
        "session": "s_1",
        "attempt": "2",
        "message_id": "m",
    }


def test_extra_field_does_not_replace_a_standard_field(stream: io.StringIO) -> None:
    configure(stream, form="json").info("real", extra={"level": "fake", "at": "never"})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"]) == ("info", "real")
    assert line["at"] != "never"


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_masked_in_every_part_of_a_line(
    stream: io.StringIO, form: Literal["text", "json"]
) -> None:
    logger = configure(stream, form=form)

    def break_down() -> None:
        msg = f"url https://api.telegram.org/bot{TOKEN}/getMe and open sesame"
        raise RuntimeError(msg)

    with log.log_context(chat="open sesame"):
        logger.info("token %s and %r", TOKEN, {"key": "open sesame"}, extra={"x": TOKEN})
        try:
            break_down()
        except RuntimeError:
            logger.exception("failed with open sesame", stack_info=True)
    text = stream.getvalue()
    assert "RuntimeError" in text
    assert "Stack (most recent call last)" in text
    assert "***" in text
    assert "sesame" not in text
    assert TOKEN[10:] not in text


def test_python_warnings_are_logged(stream: io.StringIO) -> None:
    configure(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("that is old", DeprecationWarning, stacklevel=1)
    assert "warning py.warnings: " in stream.getvalue()
    assert "that is old" in stream.getvalue()


def test_default_stream_is_stderr(stream: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(Redactor())
    logging.getLogger("gateway").info("hello")
    assert capsys.readouterr().err.endswith("info gateway: hello\n")
    assert not stream.getvalue()


def test_redirected_stderr_is_not_the_journal(tmp_path: Path) -> None:
    with (tmp_path / "one").open("w") as one, (tmp_path / "two").open("w") as two:
        status = (tmp_path / "one").stat()
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert log.is_journal_stream(environ, one)
        assert not log.is_journal_stream(environ, two)
        assert not log.is_journal_stream({}, one)
    assert not log.is_journal_stream(environ, io.StringIO())


# --- redaction ---------------------------------------------------------------------------------

KEY = "abcdefghij0123456789ABCDEFGHIJ"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (f"token {TOKEN}.", "token ***."),
        (f"https://api.telegram.org/bot{TOKEN}/getMe", "https://api.telegram.org/bot***/getMe"),
        (f"xoxb-{KEY} xoxp-12-34-{KEY}", "*** ***"),
        (f"xapp-1-A0-{KEY}", "***"),
        (f"sk-{KEY}, sk-proj-{KEY}, sk-ant-api03-{KEY}-x_y", "***, ***, ***"),
        (f"Authorization: Bearer {KEY}", "Authorization: Bearer ***"),
        (f"authorization: bearer {KEY}==;", "authorization: bearer ***;"),
        (f"hf-{(KEY * 3)[:43]}", "***"),
        (f"ghp_{KEY}{KEY}", "***"),
        (f"github_pat_{KEY}_{KEY}", "***"),
        ("AKIA0123456789ABCDEF", "***"),
        ("AIza" + "x" * 35, "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "***"),
        (f"{'M' * 24}.GaBcDe.{'x' * 38}", "***"),
        ("hooks.slack.com/services/T0/B0/abc", "hooks.slack.com/services/***"),
        ("postgresql://ann:pw@db/x", "postgresql://ann:***@db/x"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nend", "***\nend"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE cut off", "***"),
    ],
)
def test_token_like_text_is_masked(text: str, cleaned: str) -> None:
    assert Redactor().redact(text) == cleaned


def test_every_line_of_a_long_text_is_masked() -> None:
    assert Redactor().redact(f"token {TOKEN}\n" * 2000) == "token ***\n" * 2000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain words, 12:30 and 100:200",
        "scikit: sk-learn, sk-a-rather-long-name-without-a-number",
        "a bearer of bad news, Bearer authentication-of-some-kind",
        "see http://127.0.0.1:8420/ and ssh://host:22/path",
        "sha 0123456789abcdef0123456789abcdef01234567",
        "telegram:-1001234567890:u=1001",
        "s_01abcdefghijklmnop t_01abcdefghijklmnop",
        "www.example.org and one.two.three",
        "eyJ is how JSON begins in base64",
        "the xox game, AKIA, AIza, ghp_",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert Redactor().redact(text) == text


def test_configured_secrets_are_masked_in_every_encoding() -> None:
    redactor = Redactor([Secret("p@ss word"), Secret("p@ss word and more")])
    cleaned = redactor.redact("1 p@ss word, 2 p@ss word and more, 3 p%40ss%20word, 4 p@ss")
    assert cleaned == "1 ***, 2 ***, 3 ***, 4 p@ss"


def test_each_line_of_a_multiline_secret_is_masked() -> None:
    redactor = Redactor([Secret("first-line\nsecond-line\n-")])
    assert redactor.redact("first-line|second-line|-") == "***|***|-"


def test_very_short_secret_is_not_masked() -> None:
    redactor = Redactor([Secret("a"), Secret("12345")])
    assert redactor.redact("a banana, 12345") == "a banana, 12345"


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        pytest.param("123456", "123456", id="six characters"),
        pytest.param("abcd\nefgh", "abcd\nefgh", id="several lines that are short"),
        pytest.param("pass/word", "pass%2Fword", id="a slash in an address"),
    ],
)
def test_a_secret_is_masked_in_each_of_its_forms(secret: str, text: str) -> None:
    assert Redactor([Secret(secret)]).redact(f"It is {text}.") == "It is ***."


def test_a_rotated_secret_is_masked_beside_the_former_one() -> None:
    values = iter(["second-key"])
    first = Secret("first-key", lambda: next(values, ""))
    redactor = Redactor([first])
    first.reread().notify_listeners()
    assert redactor.redact("first-key, second-key") == "***, ***"


def test_secret_added_later_is_masked_from_then_on() -> None:
    redactor = Redactor()
    assert redactor.redact("one-time-link") == "one-time-link"
    redactor.add(Secret("one-time-link"))
    redactor.add(Secret("one-time-link"))
    assert redactor.redact("one-time-link") == "***"


def test_all_secrets_inside_settings_are_found() -> None:
    class Inner(Struct, frozen=True):
        key: Secret
        many: tuple[Secret, ...]

    class Outer(Struct, frozen=True):
        inner: Inner
        table: dict[str, Secret]
        many: list[Secret]
        name: str = "none"

    one, two, three, four = (Secret(each) for each in ("one", "two", "three", "four"))
    settings = Outer(Inner(one, (two,)), {"x": three}, [four])
    assert list(find_secrets(settings)) == [one, two, three, four]


@pytest.mark.parametrize("ending", ["\n", "\r", "\u2028", "\x85"])
def test_a_text_line_has_no_control_characters(stream: io.StringIO, ending: str) -> None:
    try:
        raise ValueError("\x1b[31mred")  # noqa: EM101, TRY301 - raised to be logged
    except ValueError:
        configure(stream).exception("said %s", f"\x1b]52;c;YQ==\x07 \u202ex{ending}y")
    text = stream.getvalue()
    assert not set("\x1b\x07\u202e\u2028\x85\r") & set(text)
    assert "said ␛]52;c;YQ==␇ x\\" in text.splitlines()[0]
    assert "␛[31mred" in text


def test_of_a_header_with_credentials_the_credentials_alone_are_masked() -> None:
    redactor = Redactor([Secret("Bearer plainwords"), Secret("token  another"), Secret("Basic")])
    assert (
        redactor.redact("sent plainwords and another, Basic too") == "sent *** and ***, Basic too"
    )


def test_changing_secrets_are_masked_with_the_last_ones_and_do_not_pile_up() -> None:
    redactor = Redactor([Secret("fixed-secret")])
    for number in range(100):
        redactor.set_changing("wiki", (f"access-{number}", f"refresh-{number}"))
        redactor.set_changing("wiki", (f"access-{number}", f"refresh-{number}"))  # read again
    redactor.set_changing("post", ("access-of-post",))
    redactor.set_changing("post", ())  # a login that is gone
    text = "fixed-secret access-99 refresh-98 access-of-post access-1!"
    assert redactor.redact(text) == "*** *** *** *** access-1!"
    assert redactor.redact("access-96 access-95") == "*** access-95"
    assert len(redactor.values) < 12


def test_secrets_of_a_login_that_comes_and_goes_stay_masked() -> None:
    redactor = Redactor()
    for number in range(4):
        redactor.set_changing("wiki", (f"access-{number}",))
        redactor.set_changing("wiki", ())
        redactor.set_changing("wiki", ())
    assert redactor.redact("access-0 access-1 access-2 access-3") == "*** *** *** ***"
