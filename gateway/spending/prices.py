"""What models cost: as configured, nothing for a server on this machine, else as a price list says.

The list is the extra `prices`. It takes 0.4 s and 27 MB to read, so it is asked only where a limit in
dollars is in force, and only for models without a price of their own.
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
"""What the list calls the services that have no `base_url`."""


def find_price(settings: TargetSettings, model: str) -> PriceSettings | None:
    """What a model costs; None when nobody knows."""
    if settings.price is not None:
        return settings.price
    if settings.provider == "demo" or _is_local_service(settings.base_url):
        return _FREE
    return _look_up_price(model, _PRICE_LIST_PROVIDERS.get(settings.provider), settings.base_url)


def _is_local_service(base_url: str | None) -> bool:
    """Whether the service runs on this machine: what it costs, nobody is sent a bill for."""
    host = urlsplit(base_url or "").hostname
    return host is not None and is_loopback(host)


@functools.lru_cache(maxsize=256)
def _look_up_price(model: str, service: str | None, base_url: str | None) -> PriceSettings | None:
    """Ask the list; models that are dearer for very long requests are taken at their first price."""
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
    """Say that a limit in dollars cannot be kept, and what to do about it."""
    return (
        f"nobody knows what {model} costs, so {limit} could not be kept; set {key}, or use "
        "tokens_per_day instead" + _price_list_hint()
    )


def _price_list_hint() -> str:
    try:
        import genai_prices  # noqa: F401, PLC0415 - see the module
    except ImportError:
        return " (the extra holdfast[prices] knows the usual models)"
    return ""


def check_prices(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    """Models that could be asked and whose price nobody knows, where that matters.

    One that has no name yet is looked at when it has.
    """
    limit = settings.limits.dollar_limit_key
    if not limit:
        return
    targets: list[tuple[KeyPath, TargetSettings]] = [(("model",), settings.model)]
    targets += [(("model", "fallback", n), each) for n, each in enumerate(settings.model.fallback)]
    for path, target in targets:
        if target.name and find_price(target, target.name) is None:
            key = "model.price" if path == ("model",) else "its price"
            yield (*path, "price"), unpriced_message(target.name, limit, key=key)
    for number, route in enumerate(settings.route):
        if route.model and find_route_price(settings.model, route.model) is None:
            key = "its price in a [[model.fallback]] of that name"
            yield ("route", number, "model"), unpriced_message(route.model, limit, key=key)


def find_route_price(model: ModelSettings, name: str) -> PriceSettings | None:
    """What a model costs that is reached like the configured one, or is one of the others."""
    for each in (model, *model.fallback):
        if name in {each.name, f"{each.provider}/{each.name}"}:
            return find_price(each, name)
    other = TargetSettings(provider=model.provider, base_url=model.base_url)
    return find_price(other, name)
