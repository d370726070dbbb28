"""The provider for the Responses API, based on the official SDK."""

from agent.providers.openai.clients import OpenAIClients
from agent.providers.openai.responses_wire import OPTIONAL_FEATURES, ResponsesReader, encode_request
from agent.providers.openai.service import OpenAICompatibleProvider, WireProtocol
from agent.settings import TargetSettings


def build(settings: TargetSettings) -> "OpenAIResponses":
    """Build the provider."""
    return OpenAIResponses(settings)


class OpenAIResponses(OpenAICompatibleProvider):
    """A service with the endpoint `/responses`."""

    name = "openai-responses"

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(
            OpenAIClients(settings),
            WireProtocol("/responses", encode_request, ResponsesReader, OPTIONAL_FEATURES),
        )
