"""Prices of models: configured, free for local servers, or from a price list.

The list is the extra `prices`. Loading takes 0.4 s and 27 MB, so the list is used only with a limit
in dollars, and only for models without a configured price.
"""

import functools
from collections.abc import Iterator
from urllib.parse import urlsplit

from agent.settings import ModelSettings, PriceSettings, TargetSettings
from gateway.settings import KeyPath, Settings
from sessions.values.loopback import is_loopback

_FREE = PriceSettings(input=0.0, output=0.0)
_SAMPLE_TOKENS = 1_000
_PER_MILLION = 1_000_000 / _SAMPLE_TOKENS

_PRICE_LIST_PROVIDERS = {"openai": "openai", "openai-responses": "openai", "anthropic": "anthropic"}
"""Names in the price list for services without a `base_url`."""


def find_price(settings: TargetSettings, model: str) -> PriceSettings | None:
    """Return the price of a model; None if unknown."""
    if settings.price is not None:
        return settings.price
    if settings.provider == "demo" or _is_local_service(settings.base_url):
        return _FREE
    return _look_up_price(model, _PRICE_LIST_PROVIDERS.get(settings.provider), settings.base_url)


def _is_local_service(base_url: str | None) -> bool:
    """Return True for a service on this machine, which costs nothing."""
    host = urlsplit(base_url or "").hostname
    return host is not None and is_loopback(host)


@functools.lru_cache(maxsize=256)
def _look_up_price(model: str, service: str | None, base_url: str | None) -> PriceSettings | None:
    """Look up a price; models with higher prices for long requests count at their base price."""
    try:
        from genai_prices import Usage, calc_price  # noqa: PLC0415 - see the module
    except ImportError:
        return None
    place = {"provider_api_url": base_url} if base_url else {"provider_id": service}
    try:
        plain = calc_price(
            Usage(input_tokens=_SAMPLE_TOKENS, output_tokens=_SAMPLE_TOKENS), model, **place
        )
        reread = calc_price(
            Usage(input_tokens=_SAMPLE_TOKENS, cache_read_tokens=_SAMPLE_TOKENS, output_tokens=0),
            model,
            **place,
        )
    except LookupError:
        return None
    return PriceSettings(
        input=float(plain.input_price) * _PER_MILLION,
        output=float(plain.output_price) * _PER_MILLION,
        cached=float(reread.input_price) * _PER_MILLION,
    )


def unpriced_message(model: str, limit: str, *, key: str = "model.price") -> str:
    """Return the message that a limit in dollars cannot be enforced, with the remedy."""
    return (
        f"the price of {model} is unknown, so {limit} cannot be enforced; set {key}, or use "
        "tokens_per_day instead" + _price_list_hint()
    )


def _price_list_hint() -> str:
    try:
        import genai_prices  # noqa: F401, PLC0415 - see the module
    except ImportError:
        return " (the extra holdfast[prices] knows the usual models)"
    return ""


def check_prices(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    """Yield each configured model without a known price if a limit in dollars needs it.

    A model without a name is checked once the name is known.
    """
    limit = settings.limits.dollar_limit_key
    if not limit:
        return
    targets: list[tuple[KeyPath, TargetSettings]] = [(("model",), settings.model)]
    targets += [
        (("model", "fallback", n), target) for n, target in enumerate(settings.model.fallback)
    ]
    for path, target in targets:
        if target.name and find_price(target, target.name) is None:
            key = "model.price" if path == ("model",) else "its price"
            yield (*path, "price"), unpriced_message(target.name, limit, key=key)
    for number, route in enumerate(settings.route):
        if route.model and find_route_price(settings.model, route.model) is None:
            key = "its price in a [[model.fallback]] of that name"
            yield ("route", number, "model"), unpriced_message(route.model, limit, key=key)


def find_route_price(model: ModelSettings, name: str) -> PriceSettings | None:
    """Return the price of a route's model: a configured model, or one of the same service."""
    for target in (model, *model.fallback):
        if name in {target.name, f"{target.provider}/{target.name}"}:
            return find_price(target, name)
    other = TargetSettings(provider=model.provider, base_url=model.base_url)
    return find_price(other, name)
