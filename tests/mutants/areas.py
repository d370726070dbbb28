"""The modules that are mutated, and the tests that have to notice."""

UNIT = "tests/unit"
_KEYS = (f"{UNIT}/gateway/test_key_rules.py", f"{UNIT}/gateway/test_key_store.py")
_POLICY = (
    f"{UNIT}/gateway/test_access.py",
    f"{UNIT}/gateway/test_approval_rules.py",
    f"{UNIT}/gateway/test_key_rules.py",
)
_PEOPLE = (
    f"{UNIT}/gateway/test_people.py",
    f"{UNIT}/gateway/test_pairing.py",
    f"{UNIT}/gateway/test_strangers.py",
)
_QUESTIONS = f"{UNIT}/gateway/test_approval_questions.py"
_APPROVALS = (
    f"{UNIT}/gateway/test_approval_rules.py",
    _QUESTIONS,
    f"{UNIT}/gateway/test_approvals.py",
)
_CALLS = (f"{UNIT}/agent/test_tool_runs.py", f"{UNIT}/agent/test_repeated_calls.py")
_GATE = (f"{UNIT}/agent/test_gate.py", f"{UNIT}/agent/test_nested_arguments.py")
_REDACTION = (
    f"{UNIT}/gateway/test_redact_stream.py",
    f"{UNIT}/gateway/test_redact_drawn.py",
    f"{UNIT}/gateway/test_redact_growing.py",
    f"{UNIT}/gateway/test_log.py",
    f"{UNIT}/agent/test_masks.py",
)
_MACHINE = (
    f"{UNIT}/sessions/test_machine.py",
    f"{UNIT}/sessions/test_machine_outcomes.py",
    f"{UNIT}/sessions/test_machine_requests.py",
    f"{UNIT}/sessions/test_authority.py",
    f"{UNIT}/sessions/test_attached_files.py",
)

TESTS: dict[str, tuple[str, ...]] = {
    "gateway/access/policy.py": _POLICY,
    "gateway/access/entries.py": _POLICY,
    "gateway/access/api_keys.py": _KEYS,
    "gateway/access/key_store.py": _KEYS,
    "gateway/access/pairing.py": _PEOPLE,
    "gateway/access/people.py": (*_PEOPLE, f"{UNIT}/gateway/test_key_store.py"),
    "gateway/access/strangers.py": _PEOPLE,
    "gateway/access/settings.py": (
        f"{UNIT}/gateway/test_access.py",
        f"{UNIT}/gateway/test_people.py",
    ),
    "gateway/access/claim.py": (f"{UNIT}/gateway/test_cli_run.py",),
    "gateway/access/listing.py": (
        f"{UNIT}/gateway/test_listing.py",
        f"{UNIT}/gateway/test_people.py",
    ),
    "gateway/commands/lost_access.py": (f"{UNIT}/gateway/test_lost_access.py",),
    "gateway/http/auth.py": (f"{UNIT}/gateway/http/test_http_auth.py",),
    "gateway/http/user_token.py": (f"{UNIT}/gateway/http/test_user_token.py",),
    "gateway/spending/payers.py": (f"{UNIT}/gateway/test_payers.py",),
    "gateway/commands/enforcement.py": (f"{UNIT}/gateway/test_enforcement.py",),
    "gateway/approvals/broker.py": _APPROVALS,
    "gateway/approvals/rules.py": _APPROVALS,
    "gateway/approvals/wording.py": (f"{UNIT}/gateway/test_approval_rules.py", _QUESTIONS),
    "agent/tools/gate.py": (*_GATE, *_CALLS),
    "agent/tools/names.py": _GATE,
    "agent/tools/repeats.py": _CALLS,
    "agent/tools/done_list.py": (f"{UNIT}/agent/test_done_list.py",),
    "agent/tools/loop_guard.py": (f"{UNIT}/agent/test_loop_guard.py", *_CALLS),
    "agent/tools/batches.py": (f"{UNIT}/agent/test_batches.py", *_CALLS),
    "agent/tools/registry.py": (f"{UNIT}/agent/test_tool_definition.py", *_CALLS),
    "agent/tools/contract.py": (f"{UNIT}/agent/test_tool_definition.py", *_CALLS),
    "agent/tools/masks.py": (f"{UNIT}/agent/test_masks.py",),
    "agent/tools/run.py": (f"{UNIT}/agent/test_tool_definition.py", *_CALLS),
    "gateway/observe/redact.py": _REDACTION,
    "gateway/observe/redact_drawn.py": _REDACTION,
    "gateway/observe/redact_growing.py": _REDACTION,
    "gateway/observe/redact_stream.py": _REDACTION,
    "sessions/conversation/machine.py": _MACHINE,
    "sessions/conversation/transition.py": _MACHINE,
    "sessions/conversation/expiry.py": (f"{UNIT}/sessions/test_expiry.py",),
}
