"""Known messages of services about input or output that is too long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ContextTooLong, OutputTooLong
from agent.providers.too_long import classify_too_long

INPUT = [
    (
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in "
            "10000 tokens. Please reduce the length of the messages."
        ),
        8192,
    ),
    (
        (
            "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens "
            "(112946 in the messages, 10000 in the completion). Please reduce the length of the "
            "messages"
        ),
        16384,
    ),
    (
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
            "length is 8192 tokens and your request has 8000 input tokens (9000 > 8192 - 8000)."
        ),
        8192,
    ),
    ("max_tokens must be at least 1, got -2000.", None),
    (
        (
            "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make "
            "sure that `max_model_len` is no smaller"
        ),
        8192,
    ),
    (
        (
            "This model's maximum context length is 8192 tokens. However, your request has 9000 input "
            "tokens. Please reduce the length of the input messages."
        ),
        8192,
    ),
    (
        (
            "You passed 9001 input tokens and requested 0 output tokens. However, the model's context "
            "length is only 8192 tokens, resulting in a maximum input length of 8192 tokens."
        ),
        8192,
    ),
    ("prompt is too long: 210000 tokens > 200000 maximum", 200000),
    ("Prompt is too long", None),
    ("Your input exceeds the context window of this model. Please adjust your input.", None),
    (
        (
            "the request exceeds the available context size. try increasing the context size or "
            "enable context shift"
        ),
        None,
    ),
    (
        "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        4096,
    ),
    ("the request exceeds the available context size (n_ctx=4096)", 4096),
    ("prompt too long; exceeded max context length by 123 tokens", None),
    ("the input length exceeds the context length", None),
    (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1048576,
    ),
    (
        (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
            "context length"
        ),
        32768,
    ),
    ("Range of input length should be [1, 98304]", 98304),
    (
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 "
            "`inputs` tokens and 500 `max_new_tokens`"
        ),
        4096,
    ),
    ("`inputs` must have less than 4096 tokens. Given: 5000", 4096),
    (
        (
            "Trying to keep the first 9000 tokens when context the overflows. However, the model is "
            "loaded with context length of only 4096 tokens, which is not enough."
        ),
        4096,
    ),
    (
        "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
        131072,
    ),
    ("too many tokens: the number of tokens in the prompt cannot exceed 4081", 4081),
    ("Input is too long for requested model.", None),
    ("prompt token count of 200000 exceeds the limit of 128000", 128000),
    ("invalid params, context window exceeds limit", None),
    ("Your request exceeded model token limit: 262144 (requested: 300000)", 262144),
    ("The prompt is too long: 9000, model maximum context length: 8192", 8192),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", 8192),
    (
        (
            "Requested token count exceeds the model's maximum context length of 8192 tokens. You "
            "requested a total of 9000 tokens: 8000 tokens from the input messages and 1000 tokens for "
            "the completion."
        ),
        8192,
    ),
    ("Request too large for m on tokens per min (TPM): Limit 30,000, Requested 50000.", 30000),
    ("context window of 32768", 32768),
    ("Request entity too large", None),
    ("context_length_exceeded", None),
]

OUTPUT = [
    (
        (
            "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens "
            "(3000 in the messages, 2000 in the completion). Please reduce the length of the messages "
            "or completion."
        ),
        1097,
    ),
    (
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
            "length is 8192 tokens and your request has 100 input tokens (9000 > 8192 - 100)."
        ),
        8092,
    ),
    (
        (
            "This model's maximum context length is 128000 tokens. However, you requested 65535 output "
            "tokens and your prompt contains at least 62466 input tokens, for a total of at least "
            "128001 tokens."
        ),
        32767,
    ),
    (
        (
            "You passed 5000 input tokens and requested 4000 output tokens. However, the model's "
            "context length is only 8192 tokens, resulting in a maximum input length of 4192 tokens."
        ),
        3192,
    ),
    (
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease "
            "input length or `max_tokens` and try again"
        ),
        10000,
    ),
    (
        "max_tokens: 999999 > 64000, which is the maximum allowed number of output tokens for this",
        64000,
    ),
    ("max_tokens: 999999 > 64000", 64000),
    (
        (
            "max_tokens is too large: 999999. This model supports at most 16384 completion tokens, "
            "whereas you provided 999999."
        ),
        16384,
    ),
    (
        (
            "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 128000, but "
            "got 999999 instead."
        ),
        128000,
    ),
    (
        (
            "This endpoint's maximum context length is 32768 tokens. However, you requested about "
            "40000 tokens (30000 of text input, 2000 of tool input, 8000 in the output)."
        ),
        768,
    ),
    (
        (
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is "
            "less than the `context_window` for this model"
        ),
        8192,
    ),
    ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
    ("Range of max_tokens should be [1, 8192]", 8192),
    (
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 1000 "
            "`inputs` tokens and 3500 `max_new_tokens`"
        ),
        3096,
    ),
    (
        (
            "The maximum tokens you requested exceeds the model limit of 4096. Try again with a "
            "maximum tokens value that is lower than 4096."
        ),
        4096,
    ),
    (
        (
            "Requested token count exceeds the model's maximum context length of 8192 tokens. You "
            "requested a total of 9000 tokens: 7000 tokens from the input messages and 2000 tokens for "
            "the completion."
        ),
        1192,
    ),
    ("max_tokens=9000 cannot be greater than max_model_len=8192", 8192),
    ("max_tokens is too large", None),
]

NEITHER = [
    "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000. Too many tokens.",
    "max_tokens must be an integer",
    "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
    "Missing required parameter: messages",
    "no such model",
    "",
]


@pytest.mark.parametrize(("said", "limit"), INPUT)
def test_a_conversation_that_is_too_long_is_recognized(said: str, limit: int | None) -> None:
    found = classify_too_long(said.lower(), said)
    assert type(found) is ContextTooLong
    assert found.limit == limit
    assert str(found) == said


@pytest.mark.parametrize(("said", "limit"), OUTPUT)
def test_an_output_limit_that_is_too_high_is_recognized(said: str, limit: int | None) -> None:
    found = classify_too_long(said.lower(), said)
    assert type(found) is OutputTooLong
    assert found.limit == limit
    assert str(found) == said


@pytest.mark.parametrize("said", NEITHER)
def test_other_errors_are_not_classified_as_too_long(said: str) -> None:
    assert classify_too_long(said.lower(), said) is None


@given(st.text(max_size=200) | st.sampled_from([said for said, _ in INPUT + OUTPUT]), st.integers())
def test_any_error_text_is_handled(said: str, number: int) -> None:
    classify_too_long(said.lower() + str(number), said)
