"""`/openapi.json` is valid and agrees with the API."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest
import schemathesis
from starlette.routing import Route

from gateway.http.openapi.document import EVENTS_KEY, OPERATIONS, written
from gateway.settings import HttpSettings
from sessions.values.secret import Secret
from tests.e2e.api_kit import KEY, ApiKit, served, user
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer

ROOT = Path(__file__).parents[2]
SPEC: dict[str, Any] = json.loads(written("1.2.3"))

PAGE = re.compile(r"/|/enter/.*|/web/.*")
"""Paths of the web page, which are not part of the API."""


def valid(data: Any, schema: dict[str, Any]) -> bool:
    """Return True if data fits a schema of the document."""
    whole = {**schema, "components": SPEC["components"]}
    return bool(jsonschema.Draft202012Validator(whole).is_valid(data))


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every body of the document, with its position."""
    for path, methods in SPEC["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            asked = operation.get("requestBody", {"content": {}})["content"]
            yield from ((f"{where} asks", each) for each in asked.values())
            for status, reply in operation["responses"].items():
                for media, each in reply["content"].items():
                    yield f"{where} gives {status} {media}", each


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiKit]:
    http = HttpSettings(port=0, api_key=Secret(KEY))
    async with ModelServer() as model, served(tmp_path, model, http=http) as kit:
        yield kit


# --- the document ----------------------------------------------------------------------------


async def test_document_has_exactly_the_paths_of_the_server(api: ApiKit) -> None:
    served_at = {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for route in api.kit.routes
        if isinstance(route, Route) and not PAGE.fullmatch(route.path)
        for method in route.methods or ()
        if method != "HEAD"
    }
    described = {(path, each) for path, methods in SPEC["paths"].items() for each in methods}
    assert served_at == described


async def test_document_needs_no_key(api: ApiKit) -> None:
    url = api.wire.base.removesuffix("v1") + "openapi.json"
    async with aiohttp.ClientSession() as http:
        async with http.get(url) as response:
            assert (response.status, response.content_type) == (200, "application/json")
            found = await response.json()
        async with http.get(url, headers={"authorization": "Bearer wrong"}) as response:
            assert found == await response.json()
        async with http.get(url, headers={"host": "evil.example"}) as response:
            assert response.status == 403
    version = found["info"].pop("version")
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert {**SPEC, "info": found["info"]} == found


def test_document_is_valid_openapi() -> None:
    schemathesis.openapi.from_dict(SPEC).validate()
    broken = {**SPEC, "paths": {"/livez": {"get": {"responses": {"200": {}}}}}}
    with pytest.raises(ValueError, match="required property"):
        schemathesis.openapi.from_dict(broken).validate()


def test_every_component_is_a_json_schema_and_is_used() -> None:
    shapes = SPEC["components"]["schemas"]
    for each in shapes.values():
        jsonschema.Draft202012Validator.check_schema(each)
        assert each["description"]
    used = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(SPEC)))
    assert used == set(shapes)


def test_examples_fit_their_schemas() -> None:
    seen = 0
    for where, body in bodies():
        for name, each in body.get("examples", {}).items():
            seen += 1
            if EVENTS_KEY in body:
                check_events(each["value"], body[EVENTS_KEY])
            else:
                assert valid(each["value"], body["schema"]), f"{where}: {name}"
    assert seen > 40


def check_events(stream: str, shapes: dict[str, Any]) -> set[str]:
    """Check every event of a stream against the schema of its name; return the names seen."""
    seen = set()
    *written, rest = stream.split("\n\n")
    assert rest == ""
    if not written[-1].startswith("event: message_stop"):
        assert written.pop() == "data: [DONE]"
    for event in written:
        if event.startswith(":"):
            continue
        name = "".join(re.findall(r"^event: (.*)$", event, re.MULTILINE))
        (data,) = re.findall(r"^data: (.*)$", event, re.MULTILINE)
        (shape,) = [each for known, each in shapes.items() if fnmatch(name, known)]
        assert valid(json.loads(data), shape), event
        seen.add(name)
    return seen


# --- agreement with the code -----------------------------------------------------------------


def test_every_status_of_the_api_is_described() -> None:
    pattern = re.compile(
        r"(?:status=|refusal\(|status = |Response\(\w+, )([2-5]\d\d)\b|else (5\d\d)"
    )
    folders = ("gateway/http", "gateway/http/api")
    texts = [
        path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted((ROOT / folder).glob("*.py"))
    ]
    used = {int(a or b) for text in texts for a, b in pattern.findall(text)}
    described = {reply.status for each in OPERATIONS for reply in each.responses}
    assert {400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503} <= used
    assert used - {405} <= described  # only supported methods are described


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {"messages": user("go"), "stream_options": {"include_usage": True}}),
        ("/responses", {"input": "go"}),
        ("/messages", {"messages": user("go")}),
    ],
)
async def test_stream_has_only_the_described_events(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    shop = Workshop()
    scripts = (
        'H T"Let me look." C(0,c1,read,{"path":"a"}) F tool_calls U D',
        'H T"It says" RST',
        ok(" so."),
    )
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
        aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as http,
        http.post(f"{api.wire.base}{path}", json=body | {"stream": True}) as response,
    ):
        text = await response.text()
    reply = SPEC["paths"][f"/v1{path}"]["post"]["responses"]["200"]
    names = check_events(text, reply["content"]["text/event-stream"][EVENTS_KEY])
    assert {"hermes.tool.progress", "ping"} & names
    assert len(names) > 1


ABOUT = [
    ("GET", ""),
    ("GET", "/input_items"),
    ("POST", "/cancel"),
    ("DELETE", ""),
    ("GET", ""),
    ("DELETE", ""),
]


async def test_answers_and_errors_match_the_document(tmp_path: Path) -> None:
    """Chosen cases that schemathesis finds only by chance: answers, failures, models, 404s."""
    scripts = (ok("Hello."), "S400", 'H T"so far" F content_filter D')
    async with (
        ModelServer(*scripts, ok("Hello."), ok("Hello.")) as model,
        served(tmp_path, model) as api,
    ):
        asked = [("POST", "/chat/completions", {"messages": user("hi")})] * len(scripts)
        asked.append(("POST", "/chat/completions", {"messages": []}))
        asked.append(("POST", "/chat/completions", {"messages": user("hi"), "model": "nobody"}))
        asked += [("GET", f"/models{each}", {}) for each in ("", "/scripted", "/nobody")]
        asked.append(("POST", "/messages/count_tokens", {"messages": user("hi")}))
        asked.append(("POST", "/messages", {"messages": user("hi"), "model": "nobody"}))
        asked.append(("POST", "/messages", {"messages": user("hi")}))
        asked.append(("POST", "/responses", {"input": "hi"}))
        asked += [(how, "/responses/{id}" + more, {}) for how, more in ABOUT]
        statuses, kept = [], ""
        for method, path, body in asked:
            where = path.replace("{id}", kept)
            status, headers, answer = await api.wire.send(method, where, json=body)
            kept = answer["id"] if path == "/responses" else kept
            described = "/v1" + re.sub(r"/models/.*", "/models/{name}", path)
            reply = SPEC["paths"][described][method.lower()]["responses"][str(status)]
            assert valid(answer, reply["content"]["application/json"]["schema"]), answer
            for name, header in reply.get("headers", {}).items():
                assert not header["required"] or name.lower() in headers
            statuses.append(status)
    assert statuses == [200, 400, 200, 400, 404, 200, 200, 404, 200, 404, *([200] * 6), 404, 404]
