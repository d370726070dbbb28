"""Sans-IO: decoding of request bodies, with errors that name the part of the request."""

import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec
from msgspec import inspect

from gateway.http.api.failures import RequestRefused, invalid_request

_ERROR_WITH_PATH = re.compile(r"(?P<what>.*) - at `\$\.?(?P<param>[^`]*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(?P<name>.*)`")
_INVALID_VALUE = re.compile(r"Invalid value '(?P<kind>.*)'", re.DOTALL)
_NOT_ALLOWED = re.compile(r"Invalid (?:enum )?value '?(?P<value>.*?)'?", re.DOTALL)
_PATH_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_JSON_TYPE = re.compile(r"`(?P<type>[a-z]+(?: \| [a-z]+)*)`")
_TYPE_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Values on a scale, from low to high; the types know them in alphabetical order only."""
_CONTENT_PART = re.compile(r"(?P<part>.+\.content\[.+\])\.type")

B = TypeVar("B")


def decode_body(decoder: msgspec.json.Decoder[B], content: bytes) -> B:
    """Decode a request body; raises `RequestRefused` that names the error and its position."""
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        match = _ERROR_WITH_PATH.fullmatch(str(error))
        what, param = (match["what"], match["param"]) if match else (str(error), "")
        raise _validation_error(what, param, decoder.type) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = "The body of this request is not JSON."
        raise invalid_request(msg) from error


def _type_in_words(match: re.Match[str]) -> str:
    """Return the name of a JSON type as people know it."""
    words = [_TYPE_WORDS.get(each.strip(), each.strip()) for each in match["type"].split("|")]
    return " or ".join(words)


def _allowed_values(type_: object, param: str) -> str:
    """Return the values that a field of a body allows."""
    found = [inspect.type_info(type_)]
    for name in _PATH_STEP.findall(param):
        found = [inner for each in found for inner in _types_inside(each, name)]
    values = dict.fromkeys(value for each in found for value in _values_of(each))
    return ", ".join(f"`{value}`" for value in sorted(values, key=_level))


def _level(value: object) -> int:
    """Return the position of a value on a scale; other values keep their order before it."""
    return _LEVELS.index(value) if value in _LEVELS else -1


def _types_inside(type_: inspect.Type, name: str) -> Iterator[inspect.Type]:
    match type_:
        case inspect.Metadata(type=inner):
            yield from _types_inside(inner, name)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _types_inside(each, name)
        case inspect.StructType(fields=fields, tag_field=tag_field):
            if name == tag_field:
                yield type_
            yield from (field.type for field in fields if field.encode_name == name)
        case inspect.ListType(item_type=item) if name.startswith("["):
            yield from _flat(item)
        case _:
            pass


def _flat(type_: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(type_, inspect.UnionType):
        yield from type_.types
    else:
        yield type_


def _values_of(type_: inspect.Type) -> Iterator[object]:
    match type_:
        case inspect.Metadata(type=inner):
            yield from _values_of(inner)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _values_of(each)
        case inspect.LiteralType(values=values):
            yield from values
        case inspect.StructType(tag=tag) if tag is not None:
            yield tag
        case _:
            pass


def _validation_error(what: str, param: str, type_: object) -> RequestRefused:
    kind, part = _INVALID_VALUE.fullmatch(what), _CONTENT_PART.fullmatch(param)
    if kind and part:
        msg = (
            f"Parts of type “{kind['kind'][:80]}” are not supported, only text, pictures and files."
        )
        return invalid_request(msg, part["part"])
    if missing := _MISSING_FIELD.fullmatch(what):
        where = f"{param}.{missing['name']}" if param else missing["name"]
        return missing_field(where)
    if (given := _NOT_ALLOWED.fullmatch(what)) and (allowed := _allowed_values(type_, param)):
        msg = f"“{given['value'][:80]}” is not allowed here; use one of {allowed}."
        return invalid_request(msg, param)
    expected, got, given_type = what.partition(", got ")
    msg = f"{_JSON_TYPE.sub(_type_in_words, expected)}{got}{given_type}."
    return invalid_request(msg, param or None)


def missing_field(where: str) -> RequestRefused:
    """Return the refusal of a request without a required field."""
    return invalid_request(f"`{where}` is missing.", where, "missing_required_parameter")
