"""Rules for answers to approval requests, their texts, and the reason for the model."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.risk import Risk
from gateway.access.policy import admin_addresses, build_policy
from gateway.approvals.rules import (
    Answerer,
    AnswerRefusal,
    approval_code,
    can_answer,
    can_requester_answer,
    correct_code,
    find_question,
    has_admin_roles,
    is_admin,
    is_unattended,
    parse_answer_args,
)
from gateway.approvals.wording import (
    MAX_SHOWN_CHARS,
    TURN_ENDED,
    choose_notice,
    format_arguments,
    is_shortened,
    notice_fields,
    refusal_text,
    whole_arguments,
)
from gateway.notices.catalogue import check_fields
from platforms.core.contract import Address
from sessions.records import Approval, ApprovalState
from sessions.values.notices import NoticeId

HERE, THERE = Address("memory", "1"), Address("memory", "2")


def question(
    id_: str = "p_00000000000000ab12",
    *,
    address: Address = HERE,
    person: str = "memory:1",
    own: bool = True,
    arguments: str = '{"a": 1}',
) -> Approval:
    return Approval(
        id=id_,
        key="memory:1",
        session_id="s1",
        turn_id="t1",
        call_id="c1",
        tool="pay",
        arguments=arguments,
        person=person,
        by_requester=own,
        address=address,
        asked_at=0,
        expires_at=1_800_000,
        state=ApprovalState.OPEN,
    )


def somebody(
    principal: str = "memory:1",
    *,
    admin: bool = False,
    address: Address = HERE,
    direct: bool = True,
) -> Answerer:
    return Answerer(principal, admin, address, direct)


# --- people ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("risk", "may"),
    [(Risk.EXEC, False), (Risk.NET, True), (Risk.WRITE, True)],
)
def test_the_requester_may_answer_unless_the_tool_runs_programs(risk: Risk, may: bool) -> None:
    assert can_requester_answer(risk) is may


@pytest.mark.parametrize(
    ("own", "principal", "admin", "may"),
    [
        pytest.param(True, "memory:1", False, True, id="the requester"),
        pytest.param(True, "memory:2", False, False, id="another member"),
        pytest.param(True, "memory:2", True, True, id="an admin"),
        pytest.param(False, "memory:1", False, False, id="the requester, for a program"),
        pytest.param(False, "memory:1", True, True, id="the requester, who is an admin"),
    ],
)
def test_admins_and_sometimes_the_requester_may_answer(
    own: bool, principal: str, admin: bool, may: bool
) -> None:
    assert can_answer(question(own=own), principal, admin=admin) is may


@pytest.mark.parametrize(
    ("principal", "account", "admin"),
    [
        pytest.param("memory:9", "", True, id="named"),
        pytest.param("memory:9", "work", True, id="named, under any account"),
        pytest.param("memory:8", "work", True, id="named for this account"),
        pytest.param("memory:8", "", False, id="named for another account"),
        pytest.param("memory:7", "", True, id="made an admin by a claim code"),
        pytest.param("console:owner", "", True, id="at the terminal"),
        pytest.param("web:owner", "", True, id="at the page"),
        pytest.param("memory:1", "", False, id="a member"),
        pytest.param("other:9", "", False, id="the same id elsewhere"),
    ],
)
def test_admins_are_recognised_by_name(principal: str, account: str, admin: bool) -> None:
    known = build_policy(("memory:1",), ("memory:9", "memory@work:8"), appointed=("memory:7",))
    assert is_admin(known, principal, Address("memory", "1", account)) is admin


def test_admin_roles_count_only_on_their_platform() -> None:
    known = build_policy((), ("discord:G1/role:R7", "memory:9"))
    assert has_admin_roles(known, Address("discord", "1"))
    assert not has_admin_roles(known, Address("memory", "1"))


def test_each_admin_with_a_private_chat_is_written_to_once() -> None:
    entries = ("memory:9", "memory:9", "memory@work:8", "discord:G1/role:R7")
    assert admin_addresses(entries) == (Address("memory", "9"), Address("memory", "8", "work"))


@pytest.mark.parametrize(
    ("key", "nobody"), [("api:x", True), ("schedule:daily", True), ("memory:api", False)]
)
def test_conversations_of_programs_are_unattended(key: str, nobody: bool) -> None:
    assert is_unattended(key) is nobody


# --- requests ----------------------------------------------------------------------------------

A = question("p_00000000000000ab12")
B = question("p_00000000000000cd34", arguments='{"text": "' + "long `word` " * 20 + '"}')
ELSEWHERE = question("p_00000000000000ef56", address=THERE, person="memory:2")
PROGRAM = question("p_00000000000000gh78", own=False)
LISTED = {"list": 'AB12 pay `{"a": 1}`\nCD34 pay `{"text": "' + ("long 'word' " * 20)[:49] + "…`"}


@pytest.mark.parametrize(
    ("questions", "who", "code", "found"),
    [
        pytest.param([], somebody(), "", AnswerRefusal(NoticeId.ASK_NONE), id="none"),
        pytest.param([A], somebody(), "", A, id="the only one"),
        pytest.param([A, ELSEWHERE], somebody(), "", A, id="the only one here"),
        pytest.param(
            [ELSEWHERE], somebody(), "", AnswerRefusal(NoticeId.ASK_NONE), id="only elsewhere"
        ),
        pytest.param(
            [ELSEWHERE], somebody("memory:9", admin=True), "", ELSEWHERE, id="an admin in private"
        ),
        pytest.param(
            [ELSEWHERE, A], somebody("memory:9", admin=True), "", A, id="an admin's own chat first"
        ),
        pytest.param(
            [ELSEWHERE],
            somebody("memory:9", admin=True, direct=False),
            "",
            AnswerRefusal(NoticeId.ASK_NONE),
            id="an admin in a room",
        ),
        pytest.param(
            [A, B], somebody(), "", AnswerRefusal(NoticeId.ASK_SEVERAL, LISTED), id="several"
        ),
        pytest.param(
            [A, PROGRAM], somebody(), "", A, id="the only one that this person may answer"
        ),
        pytest.param([A, B], somebody(), "CD34", B, id="by code"),
        pytest.param([A, B], somebody(), "cd34", B, id="by code in small letters"),
        pytest.param(
            [A],
            somebody(),
            "ZZ99",
            AnswerRefusal(NoticeId.ASK_UNKNOWN, {"code": "ZZ99"}),
            id="a wrong code",
        ),
        pytest.param(
            [PROGRAM], somebody(), "", AnswerRefusal(NoticeId.ADMINS_ONLY), id="for admins"
        ),
        pytest.param(
            [PROGRAM],
            somebody(),
            "GH78",
            AnswerRefusal(NoticeId.ADMINS_ONLY),
            id="for admins, by code",
        ),
        pytest.param(
            [ELSEWHERE],
            somebody(),
            "EF56",
            AnswerRefusal(NoticeId.NOT_YOURS),
            id="another person's request",
        ),
    ],
)
def test_an_answer_finds_its_request(
    questions: list[Approval], who: Answerer, code: str, found: object
) -> None:
    assert find_question(questions, who, code) == found


@pytest.mark.parametrize(
    ("args", "read"),
    [
        ("", ("", "")),
        ("AB12", ("AB12", "")),
        ("ab12  not\n now", ("ab12", "not now")),
        ("zz99", ("zz99", "")),
        ("no thanks", ("", "no thanks")),
        ("that costs", ("", "that costs")),
        ("gate", ("gate", "")),
        ("2much4 me", ("", "2much4 me")),
        ("12345 is too much", ("", "12345 is too much")),
        ("no1! please", ("", "no1! please")),
    ],
)
def test_a_code_is_distinguished_from_a_reason(args: str, read: tuple[str, str]) -> None:
    letters = question("p_00000000000000gate")
    assert parse_answer_args(args, [A, letters]) == read


def test_look_alike_characters_in_codes_are_equal() -> None:
    assert correct_code("o1lI") == "0111"
    assert approval_code("p_00000000000000z011") == correct_code("zoil")


# --- texts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reason", "more", "notice"),
    [
        (ApprovalState.OPEN, "", {}, "ask"),
        (ApprovalState.OPEN, "", {"ask_admins": True}, "ask.admin"),
        (ApprovalState.OPEN, "", {"must_ask": False}, "ask.again"),
        (ApprovalState.ALLOWED, "", {}, "ask.allowed"),
        (ApprovalState.USED, "", {}, "ask.allowed"),
        (ApprovalState.DENIED, "no", {}, "ask.denied"),
        (ApprovalState.EXPIRED, "", {}, "ask.expired"),
        (ApprovalState.EXPIRED, TURN_ENDED, {}, "ask.over"),
    ],
)
def test_each_state_of_a_request_has_its_notice(
    state: ApprovalState, reason: str, more: dict[str, bool], notice: str
) -> None:
    approval = msgspec.structs.replace(A, state=state, reason=reason)
    chosen = choose_notice(approval, **more)
    assert chosen == notice
    check_fields(chosen, notice_fields(approval, chosen))


def test_a_request_shows_the_call_itself() -> None:
    call = {"tool": "pay", "arguments": '{\n  "a": 1\n}'}
    asked = {**call, "code": "AB12", "min": 30}
    assert notice_fields(A, NoticeId.ASK, person="web:a") == {**asked, "person": "web:a"}
    assert notice_fields(A, NoticeId.ASK) == {**asked, "person": ""}
    assert notice_fields(A, NoticeId.ASK, attached=True) == {
        **asked,
        "person": "",
        "attached": "yes",
    }
    later = msgspec.structs.replace(A, asked_at=60_000, expires_at=1_860_000)
    assert notice_fields(later, NoticeId.ASK)["min"] == 30
    assert notice_fields(A, NoticeId.ASK, change="it `deletes`\n\u202e now") == {
        **asked,
        "person": "",
        "change": "\n🛠 Its server has changed this tool:\n```text\nit `deletes`\n\\u202e now\n```",
    }
    assert notice_fields(A, NoticeId.ASK_ADMIN) == asked
    assert notice_fields(A, NoticeId.ASK_DENIED) == {**call, "by": "", "reason": ""}
    assert notice_fields(A, NoticeId.ASK_OVER) == call


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param('{"a":"x\\ny"}', '{\n  "a": "x\\ny"\n}', id="line breaks stay inside"),
        pytest.param("no object", "no object", id="no JSON"),
        pytest.param('"\u202eabc"', '"\\u202eabc"', id="characters that reverse text"),
        pytest.param('"a\u200bb"', '"a\\u200bb"', id="zero-width characters"),
        pytest.param('"\U000e0041"', '"\\udb40\\udc41"', id="hidden characters beyond 16 bits"),
        pytest.param('{"a":"\ud800"}', '{"a":"\\ud800"}', id="an unpaired surrogate"),
        pytest.param('"```"', '"\\u0060\\u0060\\u0060"', id="the end of a block"),
        pytest.param('"ü 漢 `x`"', '"ü 漢 `x`"', id="ordinary text"),
    ],
)
def test_misleading_characters_in_arguments_are_escaped(arguments: str, shown: str) -> None:
    assert format_arguments(arguments) == shown


def test_long_arguments_show_their_beginning_and_end_and_the_omitted_length() -> None:
    text = format_arguments(json.dumps({"command": "begin " + "x" * 5000 + " end"}))
    assert text.startswith('{\n  "command": "begin xx')
    assert text.endswith('xx end"\n}')
    assert "… 3710 characters are not shown …" in text


def test_the_beginning_of_a_shortened_value_is_longer_than_its_end() -> None:
    text = format_arguments(json.dumps({"command": "x" * 1000 + "y" * 1000}))
    shown = f"{'x' * 975} … 700 characters are not shown … {'y' * 325}"
    assert text == f'{{\n  "command": "{shown}"\n}}'


def test_a_value_that_fits_beside_a_shortened_one_stays_whole() -> None:
    fitting = "x" * 599 + "\n"  # an escape counts as one character
    text = format_arguments(json.dumps({"long": "y" * 2000, "fitting": fitting}))
    assert f'"fitting": {json.dumps(fitting)}' in text
    assert "… 1400 characters are not shown …" in text


@pytest.mark.parametrize(("size", "shortened"), [(MAX_SHOWN_CHARS, False), (1501, True)])
def test_arguments_are_shortened_beyond_1500_characters(size: int, *, shortened: bool) -> None:
    frame = len('{\n  "a": ""\n}')
    arguments = json.dumps({"a": "x" * (size - frame)})
    assert len(whole_arguments(arguments)) == size
    assert is_shortened(arguments) is shortened
    assert (format_arguments(arguments) != whole_arguments(arguments)) is shortened


def test_many_numbers_are_cut_between_lines() -> None:
    text = format_arguments(json.dumps([7] * 1000))
    assert re.search(r"\n… \d+ characters are not shown …\n", text)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_long_values_hide_no_key_and_no_short_value(where: int) -> None:
    call = [("amount", 4200), ("to", "DE00 1234"), ("extra", {"id": [1, 2], "é": "x" * 4000})]
    call.insert(where, ("note", "begin " + "n" * 9000 + " end"))
    text = format_arguments(json.dumps(dict(call), ensure_ascii=False))
    for part in ('"amount": 4200', '"to": "DE00 1234"', '"id": [', '"é": "xxx', '"note": "begin n'):
        assert part in text
    assert 'n end"' in text
    assert len(text) <= MAX_SHOWN_CHARS


def test_arguments_with_many_keys_keep_all_of_them() -> None:
    text = format_arguments(json.dumps({f"key{n}": "v" * 500 for n in range(40)}))
    assert all(f'"key{n}": "vvv' in text for n in range(40))


def test_a_repeated_key_is_shown_twice() -> None:
    text = format_arguments('{"to":"Ann","note":"%s","to":"Eve"}' % ("n" * 5000))
    assert text.index('"to": "Ann"') < text.index('"to": "Eve"')


def test_a_shortened_value_ends_between_escapes() -> None:
    text = format_arguments(json.dumps({"a": "\u202e\\" * 3000}))
    json.loads(text)


def test_arguments_beyond_all_limits_are_cut() -> None:
    assert len(format_arguments(json.dumps(["v"] * 100_000))) < 8_100
    assert len(format_arguments("x" * 100_000)) < 1_600


@given(st.text())
def test_formatted_arguments_keep_their_meaning_and_stay_in_the_code_block(value: str) -> None:
    text = format_arguments(json.dumps({"a": value}, ensure_ascii=False))
    assert "```" not in text
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert len(text) <= MAX_SHOWN_CHARS + 60
    if "characters are not shown" not in text:
        assert json.loads(text) == {"a": value}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param(
            {"state": ApprovalState.DENIED, "answered_by": "memory:9"},
            "denied by memory:9.",
            id="denied",
        ),
        pytest.param(
            {"state": ApprovalState.DENIED, "answered_by": "memory:9", "reason": "too dear"},
            "denied by memory:9: too dear",
            id="denied with a reason",
        ),
        pytest.param(
            {"state": ApprovalState.EXPIRED},
            "it needs a person's approval, and the question was not answered within 30 minutes.",
            id="expired",
        ),
        pytest.param(
            {"state": ApprovalState.EXPIRED, "asked_at": 60_000, "expires_at": 1_860_000},
            "it needs a person's approval, and the question was not answered within 30 minutes.",
            id="expired, asked later",
        ),
        pytest.param(
            {"state": ApprovalState.USED, "answered_by": "memory:9"},
            "the permission for it was used already.",
            id="used",
        ),
        pytest.param(
            {"state": ApprovalState.EXPIRED, "expires_at": 90_000},
            "it needs a person's approval, and the question was not answered within the time there was.",
            id="expired after one and a half minutes",
        ),
        pytest.param(
            {"state": ApprovalState.EXPIRED, "expires_at": 0},
            "it needs a person's approval, and the question was not answered within the time there was.",
            id="expired at once",
        ),
        pytest.param(
            {"state": ApprovalState.EXPIRED, "expires_at": 50},
            "it needs a person's approval, and the question was not answered within the time there was.",
            id="expired after less than a minute",
        ),
    ],
)
def test_the_model_reads_why_a_call_did_not_run(changes: dict[str, Any], said: str) -> None:
    assert refusal_text(msgspec.structs.replace(A, **changes)) == said
