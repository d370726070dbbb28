import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.gate import CallIdentity
from agent.tools.loop_guard import MAX_FAILURES, MAX_REPEATS, WARN_AFTER_FAILURES, LoopGuard

READ: CallIdentity = ("read", b'{"path":"a"}')
OTHER: CallIdentity = ("read", b'{"path":"b"}')
EDIT: CallIdentity = ("edit", b'{"new":"1"}')
EDIT_2: CallIdentity = ("edit", b'{"new":"2"}')


class Turn:
    """A turn with one call per answer."""

    def __init__(self) -> None:
        self.guard = LoopGuard()

    def make(self, call: CallIdentity, result: str = "same", *, ok: bool = True) -> str | None:
        """Return the warning, or None for a refused call."""
        self.guard.begin_answer()
        if self.guard.refusal_reason(call):
            return None
        return self.guard.record_result(call, result, ok=ok, changes=call[0] == "edit")


@pytest.fixture
def turn() -> Turn:
    return Turn()


def test_a_repeated_read_is_warned_about_from_the_second_time_and_refused_the_sixth(
    turn: Turn,
) -> None:
    said = [turn.make(READ) for _ in range(6)]
    assert said[0] == ""
    assert [f"{n} times. Do not repeat" in (said[n - 1] or "") for n in (2, 3, 4, 5)] == [True] * 4
    assert said[5] is None
    refusal = turn.guard.refusal_reason(READ)
    assert refusal is not None
    assert refusal.startswith("read has NOT run")
    assert "5 times" in refusal


def test_other_calls_of_the_same_tool_may_run(turn: Turn) -> None:
    for _ in range(6):
        turn.make(READ)
    assert turn.make(OTHER) == ""


def test_a_changed_result_ends_the_warnings_for_polling(turn: Turn) -> None:
    for _ in range(4):
        turn.make(READ, "waiting")
    assert turn.make(READ, "still waiting") == ""
    assert [turn.make(READ, "waiting") is None for _ in range(6)] == [False] * 5 + [True]


def test_an_empty_result_counts_like_any_other(turn: Turn) -> None:
    assert turn.make(READ, "") == ""
    assert "2 times" in (turn.make(READ, "") or "")


def test_a_new_side_effect_resets_the_repetitions(turn: Turn) -> None:
    for number in range(8):
        assert turn.make(READ) == ""
        assert turn.make(("edit", b"%d" % number)) == ""


def test_a_repeated_side_effect_does_not_reset_the_repetitions(turn: Turn) -> None:
    said = [turn.make(call) for _ in range(7) for call in (EDIT, EDIT_2, READ)]
    assert said[-3:] == [None, None, None]


def test_a_failed_side_effect_does_not_reset_the_repetitions(turn: Turn) -> None:
    said = [turn.make(call, ok=call == READ) for _ in range(5) for call in (EDIT, READ)]
    assert "5 times" in (said[-1] or "")


def test_failed_side_effects_of_many_calls_do_not_reset_the_repetitions(turn: Turn) -> None:
    warnings = []
    for number in range(5):
        turn.make(("edit", b"%d" % number), ok=False)
        warnings.append(turn.make(READ))
    assert "5 times" in (warnings[-1] or "")


def test_other_reads_do_not_reset_the_repetitions(turn: Turn) -> None:
    warnings = []
    for number in range(5):
        turn.make(("read", b"%d" % number))
        warnings.append(turn.make(READ))
    assert "5 times" in (warnings[-1] or "")


def test_before_the_first_answer_no_call_is_refused() -> None:
    assert LoopGuard().refusal_reason(READ) is None


def test_a_failing_tool_is_warned_about_from_the_third_time_and_disabled_after_the_eighth(
    turn: Turn,
) -> None:
    said = [turn.make(("read", b"%d" % n), "no such file", ok=False) for n in range(9)]
    assert said[:2] == ["", ""]
    assert all("in a row" in (each or "") for each in said[2:8])
    assert said[8] is None
    refusal = turn.guard.refusal_reason(OTHER)
    assert refusal is not None
    assert refusal.startswith("read has NOT run: it failed 8 times")
    assert turn.make(EDIT) == ""


def test_one_success_resets_the_failures(turn: Turn) -> None:
    for round_ in range(3):
        for number in range(MAX_FAILURES - 1):
            call = ("read", b"%d %d" % (round_, number))
            assert turn.make(call, "failed", ok=False) is not None
        assert turn.make(("read", b"fine %d" % round_), "fine") == ""


def test_the_failures_of_one_answer_count_once() -> None:
    guard = LoopGuard()
    for answer in range(WARN_AFTER_FAILURES):
        guard.begin_answer()
        said = [
            guard.record_result(("read", b"%d %d" % (answer, n)), f"{n}", ok=False, changes=False)
            for n in range(20)
        ]
        assert (said == [""] * 20) is (answer < WARN_AFTER_FAILURES - 1)
        assert guard.refusal_reason(READ) is None


def test_a_success_counts_at_any_position_in_an_answer() -> None:
    guard = LoopGuard()
    for answer in range(20):
        guard.begin_answer()
        results = (False, True, False) if answer % 2 else (True, False, False)
        for number, ok in enumerate(results):
            call = ("read", b"%d %d" % (answer, number))
            assert guard.record_result(call, f"{answer}", ok=ok, changes=False) == ""


def test_refused_calls_count_as_failures_of_their_tool(turn: Turn) -> None:
    said = []
    for _ in range(MAX_FAILURES):
        turn.guard.begin_answer()
        said.append(turn.guard.record_failure("read"))
    assert [bool(each) for each in said] == [False, False] + [True] * 6
    assert turn.make(READ) is None


def test_both_warnings_are_given_together(turn: Turn) -> None:
    for _ in range(2):
        turn.make(READ, "no", ok=False)
    warning = turn.make(READ, "no", ok=False)
    assert warning is not None
    assert len(warning.splitlines()) == 2


@given(st.lists(st.tuples(st.sampled_from([READ, OTHER, EDIT, EDIT_2]), st.booleans())))
def test_no_loop_of_a_few_calls_with_one_result_continues_forever(
    circle: list[tuple[CallIdentity, bool]],
) -> None:
    turn = Turn()
    ran = [turn.make(call, ok=ok) for _ in range(60) for call, ok in circle]
    runs = sum(each is not None for each in ran)
    assert runs <= len({call for call, _ in circle}) * MAX_REPEATS * 3
