"""The question about well-known MCP servers, which npx or uvx downloads and starts."""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from gateway.operate.mcp.client_json import ImportedServer
from gateway.operate.setup.asking import AnswerError, Prompter, SetupQuestion
from gateway.operate.setup.draft import ConfigDraft
from gateway.operate.setup.mcp_tables import add_server, configured_names
from gateway.operate.setup.places import ConfigTarget
from sessions.values.spelling import did_you_mean

_NONE = "none"
_FOLDER = "{folder}"  # in arguments: the folder that the person names
_FILE = "{file}"  # in the environment: the file that the person names


class KnownServer(Struct, frozen=True, kw_only=True):
    """A server that people often add."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    question: str = ""  # for the folder or file of the server; empty if it needs none


KNOWN_SERVERS = (
    KnownServer(name="time", command=("uvx", "mcp-server-time")),
    KnownServer(name="fetch", command=("uvx", "mcp-server-fetch")),
    KnownServer(
        name="git",
        command=("uvx", "mcp-server-git", "--repository", _FOLDER),
        question="Folder of the Git repository",
    ),
    KnownServer(
        name="filesystem",
        command=("npx", "-y", "@modelcontextprotocol/server-filesystem", _FOLDER),
        question="Folder that the filesystem server may read and change",
    ),
    KnownServer(
        name="memory",
        command=("npx", "-y", "@modelcontextprotocol/server-memory"),
        env={"MEMORY_FILE_PATH": _FILE},
        question="File in which the memory server keeps its notes",
    ),
    KnownServer(
        name="sequential-thinking",
        command=("npx", "-y", "@modelcontextprotocol/server-sequential-thinking"),
    ),
    KnownServer(name="playwright", command=("npx", "-y", "@playwright/mcp@latest", "--headless")),
    KnownServer(
        name="everything", command=("npx", "-y", "@modelcontextprotocol/server-everything")
    ),
)
"""`everything` has one of each feature, for trying out."""


def ask_mcp_servers(
    prompter: Prompter,
    draft: ConfigDraft,
    target: ConfigTarget,
    find_program: Callable[[str, Mapping[str, str]], bool] | None = None,
) -> None:
    """Ask which known servers to add; nothing is asked without npx and uvx."""
    find = find_program or _is_installed
    taken = configured_names(draft)
    offered = {
        server.name: server
        for server in KNOWN_SERVERS
        if server.name not in taken and find(server.command[0], target.environ)
    }
    if not offered:
        return
    question = SetupQuestion(
        key="mcp",
        prompt=f"MCP servers to add ({', '.join(offered)}, or {_NONE})",
        default=_NONE,
        is_extra=True,
    )
    for server in _choose(prompter, question, offered):
        place = _ask_place(prompter, server, target) if server.question else ""
        add_server(draft, _with_place(server, place))


def _choose(
    prompter: Prompter, question: SetupQuestion, offered: Mapping[str, KnownServer]
) -> list[KnownServer]:
    while True:
        words = [word for word in re.split(r"[\s,]+", prompter.ask(question).lower()) if word]
        if words in ([], [_NONE], ["no"]):
            return []
        try:
            return [
                offered[name] for name in dict.fromkeys(_match(word, [*offered]) for word in words)
            ]
        except AnswerError as error:
            prompter.reject(question, error)


def _match(word: str, names: Sequence[str]) -> str:
    matching = [name for name in names if name.startswith(word)]
    if word in names or len(matching) == 1:
        return word if word in names else matching[0]
    msg = (
        f"There is no server {word!r} here{did_you_mean(word, names)}. Choose from "
        f"{', '.join(names)}, or {_NONE}. Others are added with: holdfast mcp add"
    )
    raise AnswerError(msg)


def _ask_place(prompter: Prompter, server: KnownServer, target: ConfigTarget) -> str:
    """Ask for the folder or the file of a server; a folder must exist."""
    is_folder = _FOLDER in server.command
    default = None if is_folder else str(target.path.absolute().with_name(f"{server.name}.jsonl"))
    question = SetupQuestion(
        key=f"mcp.{server.name}",
        prompt=server.question,
        default=default,
        shown_default=default or "",
        missing_message=f"The MCP server {server.name} needs a folder.",
    )
    while True:
        place = Path(prompter.ask(question).strip()).expanduser().absolute()
        if (place if is_folder else place.parent).is_dir():
            return str(place)
        kind = place if is_folder else place.parent
        prompter.reject(question, AnswerError(f"There is no folder {kind}."))


def _with_place(server: KnownServer, place: str) -> ImportedServer:
    command, *args = (place if part == _FOLDER else part for part in server.command)
    env = {name: place if value == _FILE else value for name, value in server.env.items()}
    return ImportedServer(name=server.name, command=command, args=tuple(args), env=env)


def _is_installed(program: str, environ: Mapping[str, str]) -> bool:
    return shutil.which(program, path=environ.get("PATH", "")) is not None
