"""Sans-IO: the estimate of a request's size, without the tokenizer of a model."""

from agent.request.tokens import estimate_request
from gateway.http.api.asked import ApiRequest, RequestMessage
from gateway.http.api.messages.shapes import TokenCount
from sessions.records import Attachment, Message


def count_tokens(request: ApiRequest) -> TokenCount:
    """Estimate the tokens of the system prompt, messages and tools of a request."""
    rows = [_row(each) for each in request.messages]
    return TokenCount(estimate_request(request.system_prompt, rows, request.options.tools))


def _row(message: RequestMessage) -> Message:
    files = tuple(
        Attachment(
            name=picture.name,
            media_type=picture.media_type or "image/png",
            path=picture.name,
            fetched=True,
        )
        for picture in message.pictures
    )
    return Message(message.role, message.text, tool_calls=message.tool_calls, files=files)
