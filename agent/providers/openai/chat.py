"""The provider for Chat Completions, based on the official SDK."""

import httpx2

from agent.model.contract import ModelRequest
from agent.providers.openai.chat_wire import (
    OPTIONAL_FEATURES,
    ChatDialect,
    ChatReader,
    encode_request,
)
from agent.providers.openai.clients import OpenAIClients
from agent.providers.openai.service import OpenAICompatibleProvider, WireProtocol
from agent.settings import TargetSettings


def build(settings: TargetSettings) -> "OpenAIChat":
    """Build the provider."""
    return OpenAIChat(settings)


class OpenAIChat(OpenAICompatibleProvider):
    """A service with the endpoint `/chat/completions`."""

    name = "openai"

    def __init__(self, settings: TargetSettings) -> None:
        clients = OpenAIClients(settings)
        official = httpx2.URL(clients.base_url).host == "api.openai.com"
        limit = "max_completion_tokens" if official else "max_tokens"

        def write(request: ModelRequest, without: frozenset[str]) -> bytes:
            return encode_request(request, ChatDialect(limit, without))

        super().__init__(
            clients, WireProtocol("/chat/completions", write, ChatReader, OPTIONAL_FEATURES)
        )
