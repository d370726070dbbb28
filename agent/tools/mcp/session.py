"""A session with a server, based on the official package.

Importing this module imports the package, which is slow, so `link` does so only when needed.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx2
import msgspec
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    PARSE_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
    InputResponses,
    LoggingLevel,
    LoggingMessageNotificationParams,
    Prompt,
    PromptListChangedNotification,
    ReadResourceRequest,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParamsMeta,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from agent.errors import ToolError
from agent.settings import McpSettings
from agent.tools.contract import ReportProgress
from agent.tools.mcp.arguments import make_checker
from agent.tools.mcp.contract import (
    CallArguments,
    CallHooks,
    CallNotSent,
    CallOutcomeUnclear,
    ListedPrompt,
    ListedTool,
    LoginRequired,
    OnLoginSecrets,
    PromptArgument,
    ServerListener,
    ServerOutput,
    SessionEnded,
    ignore_secrets,
)
from agent.tools.mcp.elicitation import answer_elicitation
from agent.tools.mcp.http_client import NOT_SENT, SESSION_ENDED, UNCLEAR, McpHttpClient
from agent.tools.mcp.login import stored_login
from agent.tools.mcp.results import (
    describe_resources,
    prompt_text,
    resource_output,
    result_output,
)
from agent.tools.mcp.shown import describe_progress
from agent.tools.mcp.transports import http_transport, program_transport, sse_transport
from agent.tools.questions import AskPerson
from sessions.values.frames import neutralize_output

if TYPE_CHECKING:
    from mcp.client._transport import Transport  # private, may move

_IDEMPOTENCY_KEY = "holdfast/idempotencyKey"
"""Field for the idempotency key in the metadata of a call."""

_MAX_TOOLS = 500
_MAX_PROMPTS = 50
_MAX_PAGES = 100
_MAX_RESOURCES = 200  # shown in one list
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 60.0  # between subscriptions to changes

_STATUSES_OF_OLDER_SERVERS = {400, 404, 405}
"""Answers to the first request by servers that only know the transport of 2024-11-05."""

_log = logging.getLogger(__name__)

_ANSWER_ADAPTER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)
_RESOURCE_ADAPTER: TypeAdapter[ReadResourceResult | InputRequiredResult] = TypeAdapter(
    ReadResourceResult | InputRequiredResult
)
_INPUT_REQUIRED = "The tool needs input that cannot be given here."
_MAX_INPUT_ROUNDS = 10
_UNDECODABLE = "Failed to parse "
"""Beginning of the package's errors about answers over HTTP that it cannot decode."""
_LOG_LEVEL: LoggingLevel = "warning"  # what servers of the newer protocol are asked to send
_CLIENT_INFO = Implementation(name="holdfast", version=version("holdfast"))


class OfficialSession:
    """An `McpSession` of the official package."""

    def __init__(self, client: Client, server: str, askers: "Askers") -> None:
        self._client = client
        self._server = server
        self._askers = askers

    async def list_tools(self) -> tuple[ListedTool, ...]:
        """See `McpSession`."""
        if self._client.server_capabilities.tools is None:
            return ()
        listed: dict[str, ListedTool] = {}
        cursor = None
        for _ in range(_MAX_PAGES):
            with _translate_session_end():
                page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                if tool.execution and tool.execution.task_support == "required":
                    _log.debug("the tool %s is left out, because it runs only as a task", tool.name)
                    continue
                listed.setdefault(tool.name, _to_listed_tool(tool))
            cursor = page.next_cursor
            if cursor is None or len(listed) >= _MAX_TOOLS:
                break
        return tuple(listed.values())[:_MAX_TOOLS]

    @property
    def instructions(self) -> str:
        """See `McpSession`."""
        return self._client.instructions or ""

    @property
    def has_resources(self) -> bool:
        """See `McpSession`."""
        return self._client.server_capabilities.resources is not None

    async def list_prompts(self) -> tuple[ListedPrompt, ...]:
        """See `McpSession`."""
        if self._client.server_capabilities.prompts is None:
            return ()
        listed: dict[str, ListedPrompt] = {}
        cursor = None
        with _translate_errors():
            for _ in range(_MAX_PAGES):
                page = await self._client.list_prompts(cursor=cursor)
                for prompt in page.prompts:
                    listed.setdefault(prompt.name, _to_listed_prompt(prompt))
                cursor = page.next_cursor
                if cursor is None or len(listed) >= _MAX_PROMPTS:
                    break
        return tuple(listed.values())[:_MAX_PROMPTS]

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """See `McpSession`."""
        with _translate_errors():
            found = await self._client.get_prompt(name, dict(arguments) or None)
        return prompt_text(found)

    async def list_resources(self) -> str:
        """See `McpSession`."""
        found: list[tuple[str, str, str | None]] = []
        templates: list[tuple[str, str, str | None]] = []
        with _translate_errors():
            cursor = None
            for _ in range(_MAX_PAGES):
                page = await self._client.list_resources(cursor=cursor)
                found += [(str(each.uri), each.name, each.description) for each in page.resources]
                cursor = page.next_cursor
                if cursor is None or len(found) >= _MAX_RESOURCES:
                    break
            with contextlib.suppress(MCPError):  # not every server has templates
                listed = await self._client.list_resource_templates()
                templates += [
                    (each.uri_template, each.name, each.description)
                    for each in listed.resource_templates
                ]
        shown = describe_resources((*found[:_MAX_RESOURCES], *templates[:_MAX_RESOURCES]))
        return shown or "The server lists no resources."

    async def read_resource(self, uri: str, report_progress: ReportProgress) -> ServerOutput:
        """See `McpSession`."""
        request = ReadResourceRequest(params=ReadResourceRequestParams(uri=uri))
        with _translate_errors():
            answer = await self._client.session.send_request(
                request, _RESOURCE_ADAPTER, progress_callback=_progress_callback(report_progress)
            )
        if isinstance(answer, InputRequiredResult):
            raise ToolError(_INPUT_REQUIRED)
        return resource_output(answer)

    async def call(
        self, tool: str, arguments: CallArguments, key: str, hooks: CallHooks
    ) -> ServerOutput:
        """See `McpSession`.

        This does not use the package's `call_tool`, which retries calls and discards results that
        do not fit the output schema, although the call has taken effect.
        """
        params = CallToolRequestParams(
            name=tool,
            arguments=arguments,
            _meta=cast("RequestParamsMeta", {_IDEMPOTENCY_KEY: key}),
        )
        progress = _progress_callback(hooks.report_progress)
        with self._askers.asking(hooks.ask_person):
            for _ in range(_MAX_INPUT_ROUNDS):
                with _translate_errors():
                    answer = await self._client.session.send_request(
                        CallToolRequest(params=params), _ANSWER_ADAPTER, progress_callback=progress
                    )
                if not isinstance(answer, InputRequiredResult):
                    return result_output(answer)
                responses = await self._answer_inputs(answer, hooks.ask_person)
                params = params.model_copy(
                    update={"input_responses": responses, "request_state": answer.request_state}
                )
        raise ToolError(_INPUT_REQUIRED)

    async def _answer_inputs(
        self, required: InputRequiredResult, ask: AskPerson | None
    ) -> InputResponses:
        """Answer the questions of a server of the newer protocol, one after the other."""
        responses: InputResponses = {}
        for key, request in (required.input_requests or {}).items():
            if not isinstance(request, ElicitRequest):
                raise ToolError(_INPUT_REQUIRED)
            responses[key] = await answer_elicitation(self._server, request.params, ask)
        return responses


class Askers:
    """The running calls of a session that can ask a person.

    Servers of the older protocol do not say which call a question belongs to, so it is asked only
    if one call runs.
    """

    def __init__(self) -> None:
        self._running: list[AskPerson | None] = []

    @contextlib.contextmanager
    def asking(self, ask: AskPerson | None) -> Iterator[None]:
        """Count a running call within the block."""
        self._running.append(ask)
        try:
            yield
        finally:
            self._running.remove(ask)

    @property
    def only(self) -> AskPerson | None:
        """The way to ask for the only running call; None if there is none, or several."""
        return self._running[0] if len(self._running) == 1 else None


def _progress_callback(report_progress: ReportProgress) -> ProgressFnT:
    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        report_progress(describe_progress(progress, total, message))

    return on_progress


@contextlib.asynccontextmanager
async def connected(
    settings: McpSettings,
    listener: ServerListener,
    logins: Path | None = None,
    on_secrets: OnLoginSecrets = ignore_secrets,
    person: str = "",
) -> AsyncIterator[OfficialSession]:
    """Open a session with a server; see `Connect`.

    `logins` is the folder of stored logins, `on_secrets` gets their tokens, and `person` is the
    person whose login is used.
    """

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification | PromptListChangedNotification):
            listener.on_tools_changed()

    async def on_log(params: LoggingMessageNotificationParams) -> None:
        data = params.data
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        listener.on_log_message(params.level, text)

    askers = Askers()

    async def on_elicitation(
        context: ClientRequestContext,  # noqa: ARG001 - the package names it
        params: ElicitRequestParams,
    ) -> ElicitResult | ErrorData:
        return await answer_elicitation(settings.name, params, askers.only)

    def make_client(transport: "Transport") -> Client:
        return Client(
            transport,
            cache=None,
            client_info=_CLIENT_INFO,
            message_handler=on_message,
            logging_callback=on_log,
            log_level=_LOG_LEVEL,
            elicitation_callback=on_elicitation,
        )

    async with contextlib.AsyncExitStack() as opened:
        if settings.url is None:
            transport = program_transport(settings, listener)
            client = await opened.enter_async_context(make_client(transport))
        else:
            auth = await stored_login(logins, settings, on_secrets, person) if logins else None
            client = await _open_http_client(settings, listener, make_client, opened, auth)
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(
                _watch_changes(client, listener), name=f"changes of {settings.name}"
            )
            try:
                yield OfficialSession(client, settings.name, askers)
            finally:
                watcher.cancel()


async def _open_http_client(
    settings: McpSettings,
    listener: ServerListener,
    make_client: Callable[["Transport"], Client],
    opened: contextlib.AsyncExitStack,
    auth: httpx2.Auth | None,
) -> Client:
    """Connect over HTTP, by the older transport if the server does not know the newer one.

    The specification says when: the server refuses the first request of the newer transport.

    Raises:
        LoginRequired: The server asks for a login.
    """
    headers = {name: value.reveal() for name, value in settings.headers.items()}
    http = await opened.enter_async_context(McpHttpClient(settings.login_command, headers, auth))
    try:
        return await opened.enter_async_context(
            make_client(http_transport(settings, listener, http))
        )
    except (MCPError, ExceptionGroup) as error:
        status = http.rejection.status if http.rejection else None
        if status == httpx2.codes.UNAUTHORIZED:
            raise LoginRequired(
                settings.login_command, _why_unauthorized(settings, auth)
            ) from error
        if status not in _STATUSES_OF_OLDER_SERVERS:
            raise
        try:
            client = make_client(sse_transport(settings, listener, http))
            return await opened.enter_async_context(client)
        except (MCPError, OSError, ExceptionGroup):  # of the older transport
            raise error from None


def _why_unauthorized(settings: McpSettings, auth: httpx2.Auth | None) -> str:
    if auth is not None:
        return "the server does not accept the stored login (HTTP 401)"
    if settings.headers:
        return "the server answered HTTP 401: it does not accept the configured headers"
    return "the server answered HTTP 401: it asks for a login"


async def _watch_changes(client: Client, listener: ServerListener) -> None:
    """Subscribe to changes of tools and prompts, in newer protocol versions; renew a lost subscription.

    The message handler of the client receives the changes. This task only reports a possible change
    before each subscription.
    """
    tools, prompts = client.server_capabilities.tools, client.server_capabilities.prompts
    of_tools = bool(tools and tools.list_changed)
    of_prompts = bool(prompts and prompts.list_changed)
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (of_tools or of_prompts):
        return
    pause = _FIRST_PAUSE_SECONDS
    while True:
        with contextlib.suppress(MCPError, SubscriptionLost, TimeoutError):
            async with client.listen(
                tools_list_changed=of_tools, prompts_list_changed=of_prompts
            ) as changes:
                # Changes before the subscription, also since the first list, are not announced.
                listener.on_tools_changed()
                async for _ in changes:
                    pass
        await asyncio.sleep(pause)
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)


@contextlib.contextmanager
def _translate_session_end() -> Iterator[None]:
    try:
        yield
    except MCPError as error:
        if error.code == SESSION_ENDED:
            raise SessionEnded(error.message) from error
        raise


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except MCPError as error:
        reason = neutralize_output(error.message or "")
        if error.code == SESSION_ENDED:
            raise SessionEnded(reason) from error
        if error.code in {NOT_SENT, HEADER_MISMATCH}:
            raise CallNotSent(reason) from error
        if error.code in {UNCLEAR, CONNECTION_CLOSED} or (
            error.code == PARSE_ERROR and reason.startswith(_UNDECODABLE)
        ):
            raise CallOutcomeUnclear(reason) from error
        raise ToolError(reason or f"The call failed with error {error.code}.") from error
    except ValidationError as error:
        msg = "its answer cannot be decoded"
        raise CallOutcomeUnclear(msg) from error


def _to_listed_prompt(prompt: Prompt) -> ListedPrompt:
    return ListedPrompt(
        name=prompt.name,
        description=prompt.description or prompt.title or "",
        arguments=tuple(
            PromptArgument(
                name=argument.name,
                description=argument.description or "",
                required=bool(argument.required),
            )
            for argument in prompt.arguments or ()
        ),
    )


def _to_listed_tool(tool: Tool) -> ListedTool:
    hints = tool.annotations
    title = tool.title or (hints.title if hints else None)
    return ListedTool(
        name=tool.name,
        description=tool.description or title or "",
        schema=tool.input_schema,
        read_only=bool(hints and hints.read_only_hint),
        open_world=bool(hints and hints.open_world_hint),
        check=make_checker(tool.name, tool.input_schema),
    )
