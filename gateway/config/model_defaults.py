"""Sans-IO: defaults of `[model]` and its fallbacks: provider, name, address and API key.

A key is only sent to the address it was given for: the key of `[model]` and the usual environment
variables are not used for a fallback with a `base_url` of its own.
"""

from collections.abc import Mapping
from typing import Any

from agent.settings import SERVICES, ModelServiceDefaults
from gateway.config.decode import Problem
from gateway.config.layers import ConfigTree, ValueOrigin, format_path
from gateway.settings import KeyPath

_DEFAULT_ORIGIN = ValueOrigin("default", "default")
_PROVIDER_BY_VARIABLE = (
    ("OPENAI_API_KEY", "openai"),
    ("OPENAI_BASE_URL", "openai"),
    ("ANTHROPIC_API_KEY", "anthropic"),
)


def fill_model_defaults(tree: ConfigTree, environ: Mapping[str, str]) -> list[Problem]:
    """Fill in `[model]` and its fallbacks; return a problem for each missing API key.

    Malformed values are left alone, because decoding reports them.
    """
    model = tree.get(("model",), {})
    if not isinstance(model, dict):
        return []
    if "provider" not in model:
        provider, origin = _choose_provider(tree, environ)
        tree.put(("model", "provider"), provider, origin)
    model = tree.get(("model",))
    problems = _fill_from_environment(tree, environ, ("model",))
    service = _service(model)
    if service and service.model and "name" not in model and "base_url" not in model:
        tree.put(("model", "name"), service.model, _DEFAULT_ORIGIN)
    fallbacks = model.get("fallback")
    for index, fallback in enumerate(fallbacks if isinstance(fallbacks, list) else []):
        if isinstance(fallback, dict):
            problems += _fill_fallback(tree, environ, ("model", "fallback", index), fallback)
    return problems


def _choose_provider(tree: ConfigTree, environ: Mapping[str, str]) -> tuple[str, ValueOrigin]:
    for key in ("api_key", "base_url"):
        if tree.get(("model", key)) is not None:
            return "openai", tree.origin(("model", key)) or _DEFAULT_ORIGIN
    for variable, provider in _PROVIDER_BY_VARIABLE:
        if environ.get(variable):
            return provider, ValueOrigin(variable, "environment")
    return "demo", _DEFAULT_ORIGIN


def _fill_from_environment(
    tree: ConfigTree, environ: Mapping[str, str], path: KeyPath
) -> list[Problem]:
    """Take API key and address from the environment unless the configuration has them."""
    table = tree.get(path)
    service = _service(table)
    if service is None:
        return []
    for key, variable in (("api_key", service.key_variable), ("base_url", service.url_variable)):
        if key not in table and variable and environ.get(variable):
            tree.put((*path, key), environ[variable], ValueOrigin(variable, "environment"))
    if service.key_variable and "api_key" not in table and "base_url" not in table:
        text = f"{format_path(path)}.api_key is missing; set it, or {service.key_variable}"
        return [Problem((*path, "provider"), text)]
    return []


def _fill_fallback(
    tree: ConfigTree, environ: Mapping[str, str], path: KeyPath, table: dict[str, Any]
) -> list[Problem]:
    own_address = "base_url" in table
    if "provider" not in table:
        _inherit(tree, path, "provider")
        if not own_address:
            _inherit(tree, path, "base_url")
    primary = tree.get(("model",))
    same_service = _service(table) == _service(primary)
    if "api_key" not in table and same_service and _base_url(table) == _base_url(primary):
        _inherit(tree, path, "api_key")
    clocks = tree.get(("model", "timeouts"))
    if isinstance(clocks, dict) and isinstance(table.get("timeouts", {}), dict):
        for clock in set(clocks) - set(table.get("timeouts", {})):
            _inherit(tree, path, "timeouts", clock)
    return [] if own_address else _fill_from_environment(tree, environ, path)


def _inherit(tree: ConfigTree, path: KeyPath, *key: str) -> None:
    value = tree.get(("model", *key))
    origin = tree.origin(("model", *key)) or _DEFAULT_ORIGIN
    if value is None:
        return
    if origin.kind != "default":  # the label of [model], marked as not written here
        origin = ValueOrigin(origin.label, "inherited")
    tree.put((*path, *key), value, origin)


def _service(table: dict[str, Any]) -> ModelServiceDefaults | None:
    return SERVICES.get(str(table.get("provider")))


def _base_url(table: dict[str, Any]) -> str:
    return str(table.get("base_url") or "")
