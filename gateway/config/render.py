"""Sans-IO: settings as text: the values in force, the JSON schema, the documentation page.

Everything is generated from the settings structs and therefore always agrees with the code.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from gateway.config.decode import describe_type, iter_metas, unwrap_type
from gateway.config.examples import example_lines
from gateway.config.layers import format_path, quote_toml
from gateway.config.unsupported import is_unsupported
from gateway.settings import KeyPath, Settings
from platforms.core.contract import PlatformSpec
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from sessions.values.size import Size

_PASSWORD = re.compile(r"(?<=://)([^/@\s]*):[^/@\s]*@")


# --- values in force ---------------------------------------------------------------------------


def render_settings(
    settings: Settings, sources: Mapping[KeyPath, str] | None = None, *, secrets: bool = False
) -> str:
    """Return settings as TOML, each value with its origin; secrets are masked unless requested."""
    return (
        "\n".join(_TomlWriter(sources or {}, secrets=secrets).table_lines(settings, ())).strip()
        + "\n"
    )


def settings_data(value: object, *, secrets: bool = False) -> Any:  # noqa: ANN401 - JSON data
    """Return settings as JSON data; secrets are masked unless requested."""
    match value:
        case Struct():
            value = msgspec.structs.asdict(value)
            return {key: settings_data(item, secrets=secrets) for key, item in value.items()}
        case dict():
            return {str(key): settings_data(item, secrets=secrets) for key, item in value.items()}
        case tuple() | list():
            return [settings_data(item, secrets=secrets) for item in value]
        case Duration() | Size():
            return str(value)
        case None | bool() | int() | float():
            return value
        case _:
            return _text_of(value, secrets=secrets)


def _text_of(value: object, *, secrets: bool) -> str:
    """Return a value as text; a secret, or the password of an address, is masked."""
    if isinstance(value, Secret):
        return value.reveal() if secrets else _mask_secret(value.reveal())
    return str(value) if secrets else _PASSWORD.sub(r"\1:***@", str(value))


class _TomlWriter:
    def __init__(self, sources: Mapping[KeyPath, str], *, secrets: bool) -> None:
        self._sources = sources
        self._secrets = secrets

    def table_lines(self, settings: Struct | dict[str, Any], path: KeyPath) -> Iterator[str]:
        """Yield values before tables, because in TOML a header applies to all following lines."""
        items = settings if isinstance(settings, dict) else msgspec.structs.asdict(settings)
        below = []
        for key, value in items.items():
            if _is_table(value) or (isinstance(value, tuple) and value and _is_table(value[0])):
                below.append((key, value))
            else:
                yield self._format_line(key, value, (*path, key))
        for key, value in below:
            tables = value if isinstance(value, tuple) else [value]
            for index, table in enumerate(tables):
                inside: KeyPath = (*path, key)
                header = format_path(tuple(part for part in inside if isinstance(part, str)))
                yield from ("", f"[[{header}]]" if isinstance(value, tuple) else f"[{header}]")
                inside = (*inside, index) if isinstance(value, tuple) else inside
                yield from self.table_lines(table, inside)

    def _format_line(self, key: str, value: object, path: KeyPath) -> str:
        name = format_path((key,))
        if value is None:
            return f"# {name} is not set"
        source = " ".join(self._sources.get(path, "").split())
        return f"{name} = {self._format_value(value)}" + (f"  # {source}" if source else "")

    def _format_value(self, value: object) -> str:
        match value:
            case bool():
                return str(value).lower()
            case Duration() | Size():
                return quote_toml(str(value))
            case int() | float():
                return repr(value)
            case tuple() | list():
                return "[" + ", ".join(self._format_value(item) for item in value) + "]"
            case dict():
                pairs = (
                    f"{format_path((key,))} = {self._format_value(item)}"
                    for key, item in value.items()
                )
                return "{" + ", ".join(pairs) + "}"
            case _:
                return quote_toml(_text_of(value, secrets=self._secrets))


def _is_table(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(isinstance(item, Struct) for item in value.values())
    return isinstance(value, Struct)


def _mask_secret(secret: str) -> str:
    """Mask a secret completely, or only the password if it is a URL."""
    return _PASSWORD.sub(r"\1:***@", secret) if "://" in secret else "***"


# --- schema ------------------------------------------------------------------------------------

_CUSTOM_TYPE_SCHEMAS: dict[type, dict[str, Any]] = {
    Secret: {
        "type": "string",
        "description": "env:NAME, file:PATH, credential:NAME or the secret itself",
    },
    Path: {"type": "string"},
    Duration: {"anyOf": [{"type": "string"}, {"type": "number"}]},
    Size: {"anyOf": [{"type": "string"}, {"type": "integer"}]},
}


def build_schema(specs: Mapping[str, PlatformSpec]) -> dict[str, Any]:
    """Return the JSON schema of a configuration file, for editors."""
    made = _object_schema(Settings)
    platforms = {name: _object_schema(spec.config) for name, spec in sorted(specs.items())}
    made["properties"]["platforms"] = {
        "type": "object",
        "properties": platforms,
        "additionalProperties": False,
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Holdfast", **made}


def _object_schema(kind: type[Struct]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": _first_sentence(kind),
        "properties": {field.encode_name: _property_schema(field) for field in fields(kind)},
        "required": [field.encode_name for field in fields(kind) if field.required],
        "additionalProperties": False,
    }


def _property_schema(field: FieldInfo) -> dict[str, Any]:
    made = _type_schema(field.type)
    about = _description(field)
    return {**made, "description": about} if about else made


def _type_schema(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - annotations have no type of their own
    bare = unwrap_type(kind)
    if bare in _CUSTOM_TYPE_SCHEMAS:
        return _CUSTOM_TYPE_SCHEMAS[bare]
    if get_origin(bare) is tuple:
        return {"type": "array", "items": _type_schema(get_args(bare)[0])}
    if get_origin(bare) is dict:
        return {"type": "object", "additionalProperties": _type_schema(get_args(bare)[1])}
    if isinstance(bare, type) and issubclass(bare, Struct):
        return _object_schema(bare)
    made = msgspec.json.schema(kind)
    # TOML has no null: an optional key can only be left out.
    return next((each for each in made.get("anyOf", ()) if each != {"type": "null"}), made)


# --- documentation page ------------------------------------------------------------------------

_PAGE_HEADER = """# Configuration

This page is written by `python -m scripts.configuration_docs` from the declarations in the code.

The configuration is a TOML file: `--config FILE`, else `$HOLDFAST_CONFIG`, else the first of `./holdfast.toml`,
`~/.config/holdfast/holdfast.toml` and `/etc/holdfast/holdfast.toml`. Holdfast also starts without a file; the first line of
`holdfast run` names the file. A `./holdfast.toml` needs `--config holdfast.toml`, or a yes at the terminal, if it belongs to
another user, or if it was not used before and sets more than `[gateway]`, `[sessions]`, `[limits]`, `[media]` and the model's
name and numbers: other settings decide which programs start, where keys from the environment are sent, and who has
access. The question names the settings. After a yes it comes back only when one of them changes. A daemon without a
terminal does not start with such a file; give it `--config`.
A value comes from `--set section.key=VALUE`, else from the file, else from the environment, else it is the default.
In the environment a key is written `HOLDFAST_SECTION__KEY`, for example `HOLDFAST_HTTP__PORT=9000`.

`holdfast config check` reports errors with line and key; `holdfast config show` prints the values in force and their
origin; `holdfast config schema` prints a JSON schema for editors.

A **secret** is written as `env:NAME` (an environment variable), `file:PATH` (the content of a file), `credential:NAME`
(a file in the folder of credentials), or literally. A file with literal secrets should be readable only by its owner
(`chmod 600`). If a model service rejects its key, the key is read again from its file or credential, so a rotated key is
picked up without a restart. Relative paths are relative to the folder of the configuration file.
The **folder of credentials** is the one that systemd passes (`LoadCredential=`), else `~/.config/holdfast/credentials`,
else `/etc/holdfast/credentials`. A file in this folder with the name of an environment variable, such as
`TELEGRAM_BOT_TOKEN`, counts as that variable unless the variable is set. See [service.md](service.md).
A **duration** is written as `"24h"`, `"1h 30m"` or a number of seconds.
"""


def render_documentation(specs: Mapping[str, PlatformSpec]) -> str:
    """Return the documentation page of all keys in Markdown."""
    lines = [_PAGE_HEADER]
    for field in fields(Settings):
        if field.name == "platforms":
            for name, spec in sorted(specs.items()):
                lines += _section_lines(f"[platforms.{name}]", spec.config, spec.secrets)
            continue
        kind = unwrap_type(field.type)
        many = get_origin(kind) is tuple
        header = f"[[{field.name}]]" if many else f"[{field.name}]"
        lines += _section_lines(
            header, get_args(kind)[0] if many else kind, _SECTION_VARIABLES.get(header, {})
        )
    return _with_contents("\n".join(lines).rstrip() + "\n")


_SECTION_VARIABLES = {
    "[model]": {
        "api_key": "OPENAI_API_KEY` or `ANTHROPIC_API_KEY",
        "base_url": "OPENAI_BASE_URL",
    }
}


def _section_lines(header: str, kind: type[Struct], variables: Mapping[str, str]) -> Iterator[str]:
    yield from ("", f"## `{header}`", "", _first_sentence(kind), *example_lines(header))
    rows, below = [], []
    for field in fields(kind):
        path = f"{header.strip('[]')}.{field.encode_name}"
        child = _nested_table(path, unwrap_type(field.type))
        if child is None:
            refused = is_unsupported(path.split("."))
            rows.append(_key_row(field, variables.get(field.encode_name, ""), unsupported=refused))
        else:
            below.append(child)
    if rows:
        yield from ("", "| key | value | default | |", "|---|---|---|---|", *rows)
    for name, child_kind in below:
        if issubclass(kind, child_kind):  # [[model.fallback]] repeats the keys of [model]
            yield from ("", f"## `{name}`", "", _first_sentence(child_kind))
        else:
            yield from _section_lines(name, child_kind, {})


def _nested_table(name: str, kind: Any) -> tuple[str, type[Struct]] | None:  # noqa: ANN401
    """Return header and struct of the tables under a key; None if the key holds a value."""
    header, child = {
        tuple: (f"[[{name}]]", get_args(kind)[:1]),
        dict: (f"[{name}.NAME]", get_args(kind)[1:]),
    }.get(get_origin(kind), (f"[{name}]", (kind,)))
    if child and isinstance(child[0], type) and issubclass(child[0], Struct):
        return header, child[0]
    return None


def _key_row(field: FieldInfo, variable: str, *, unsupported: bool) -> str:
    about = _description(field)
    if unsupported:
        about += " *Not supported in this version.*"
    if variable:
        about += f" Environment: `{variable}`."
    cells = (
        f"`{field.encode_name}`",
        _describe_value(field.type),
        _default_text(field),
        about.strip(),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _description(field: FieldInfo) -> str:
    return next((meta.description for meta in iter_metas(field.type) if meta.description), "")


def _describe_value(kind: Any) -> str:  # noqa: ANN401 - annotations have no type of their own
    own = {
        Secret: "a secret",
        Path: "a path",
        Duration: "a duration",
        Size: "a size in bytes",
    }
    return own.get(unwrap_type(kind)) or describe_type(kind)


def _default_text(field: FieldInfo) -> str:
    if field.default is NODEFAULT and field.default_factory is NODEFAULT:
        return "required"
    value = field.default if field.default is not NODEFAULT else field.default_factory()
    return "" if value is None else f"`{_TomlWriter({}, secrets=True)._format_value(value)}`"  # noqa: SLF001


def _first_sentence(kind: type[Struct]) -> str:
    return (kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ").strip()


def _with_contents(page: str) -> str:
    """Insert a table of contents below the title."""
    headers = re.findall(r"^## `(.+)`$", page, re.MULTILINE)
    links = (f"[`{header}`](#{re.sub(r'[^a-z_]', '', header.lower())})" for header in headers)
    title, _, rest = page.partition("\n")
    return f"{title}\n\nSections: {', '.join(links)}.\n{rest}"
