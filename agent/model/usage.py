"""Sans-IO: token usage and cost of model requests."""

import msgspec

_TOKENS_PER_PRICE_UNIT = 1_000_000
ASSUMED_ANSWER_TOKENS = 4096
"""Assumed maximum length of an answer if no output limit is set."""


class Price(msgspec.Struct, frozen=True):
    """Price in dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None  # input read from the service's cache; None: same as `input`


class Usage(msgspec.Struct, frozen=True):
    """Usage of one or more requests."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0  # part of `input_tokens`
    cost: float | None = None  # dollars; None: not known
    reasoning_tokens: int = 0  # part of `output_tokens`; 0: also if not known

    def __add__(self, other: "Usage") -> "Usage":
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            sum(known) if known else None,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens


class UsageEstimate(msgspec.Struct, frozen=True):
    """Expected maximum usage of a request before it is sent."""

    model: str
    input_tokens: int
    output_tokens: int
    price: Price | None

    @property
    def total_tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> float | None:
        """Cost in dollars; None if the price is not known."""
        return compute_cost(Usage(self.input_tokens, self.output_tokens), self.price)


def compute_cost(usage: Usage, price: Price | None) -> float | None:
    """Return the cost in dollars: as reported, else computed from the price, else None."""
    if usage.cost is not None or price is None:
        return usage.cost
    fresh = usage.input_tokens - usage.cached_tokens
    cached = usage.cached_tokens * (price.input if price.cached is None else price.cached)
    return (
        fresh * price.input + cached + usage.output_tokens * price.output
    ) / _TOKENS_PER_PRICE_UNIT
