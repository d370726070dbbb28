"""Sans-IO: what model answers cost, in tokens and in money."""

import msgspec

_TOKENS_PER_PRICE_UNIT = 1_000_000


class Price(msgspec.Struct, frozen=True):
    """Dollars for a million tokens."""

    input: float
    output: float
    cached: float | None = None  # of input read from the service's cache; None: as other input


class Usage(msgspec.Struct, frozen=True):
    """What one request used, or several together."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0  # of the input
    cost: float | None = None  # dollars; None: not known

    def __add__(self, other: "Usage") -> "Usage":
        known = [each for each in (self.cost, other.cost) if each is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            sum(known) if known else None,
        )

    @property
    def total_tokens(self) -> int:
        """All of them."""
        return self.input_tokens + self.output_tokens


ASSUMED_ANSWER_TOKENS = 4096
"""Tokens that an answer is supposed to have at most, where no output limit is set."""


class UsageEstimate(msgspec.Struct, frozen=True):
    """What a request may use at most, before it is sent; its input is an estimate."""

    model: str
    input_tokens: int
    output_tokens: int
    price: Price | None

    @property
    def total_tokens(self) -> int:
        """All of them."""
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> float | None:
        """Dollars; None when nobody knows the price."""
        return compute_cost(Usage(self.input_tokens, self.output_tokens), self.price)


def compute_cost(usage: Usage, price: Price | None) -> float | None:
    """Dollars: as the service said, else by the price list, else not known."""
    if usage.cost is not None or price is None:
        return usage.cost
    fresh = usage.input_tokens - usage.cached_tokens
    cached = usage.cached_tokens * (price.input if price.cached is None else price.cached)
    return (
        fresh * price.input + cached + usage.output_tokens * price.output
    ) / _TOKENS_PER_PRICE_UNIT
