"""The provider for Chat Completions, over the official SDK."""

import httpx2

from agent.model.contract import ModelRequest
from agent.providers.openai.chat_wire import OPTIONAL, ChatReader, Dialect, to_body
from agent.providers.openai.clients import Clients
from agent.providers.openai.service import Service, Wire
from agent.settings import TargetSettings


def build(settings: TargetSettings) -> "OpenAIChat":
    """Make the provider."""
    return OpenAIChat(settings)


class OpenAIChat(Service):
    """Any service that offers `/chat/completions`."""

    name = "openai"

    def __init__(self, settings: TargetSettings) -> None:
        clients = Clients(settings)
        official = httpx2.URL(clients.base_url).host == "api.openai.com"
        limit = "max_completion_tokens" if official else "max_tokens"

        def write(request: ModelRequest, without: frozenset[str]) -> bytes:
            return to_body(request, Dialect(limit, without))

        super().__init__(clients, Wire("/chat/completions", write, ChatReader, OPTIONAL))
