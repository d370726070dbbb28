"""The provider for Responses, over the official SDK."""

from agent.providers.openai.clients import Clients
from agent.providers.openai.responses_wire import OPTIONAL, ResponsesReader, to_body
from agent.providers.openai.service import Service, Wire
from agent.settings import TargetSettings


def build(settings: TargetSettings) -> "OpenAIResponses":
    """Make the provider."""
    return OpenAIResponses(settings)


class OpenAIResponses(Service):
    """Any service that offers `/responses`."""

    name = "openai-responses"

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(Clients(settings), Wire("/responses", to_body, ResponsesReader, OPTIONAL))
