"""Sans-IO: recognition of requests that front ends send on their own, for titles, tags or searches."""

from agent.model.answer_options import ToolMode
from gateway.http.api.asked import ApiRequest
from sessions.records import MessageRole

_PROMPT_MARKS = (
    "### Task:",  # Open WebUI: titles, tags, follow-up questions
    "Generate a title for this conversation:",  # opencode
    "Provide a concise, 5-word-or-less title for the conversation",  # LibreChat
    "Analyze this conversation and provide:\n1. The detected language",  # LibreChat, as JSON
)
"""Beginnings of the prompts with which front ends ask for titles and the like."""

_TASKS = frozenset(
    {
        "autocomplete_generation",
        "emoji_generation",
        "follow_up_generation",
        "function_calling",
        "image_prompt_generation",
        "moa_response_generation",
        "query_generation",
        "tags_generation",
        "title_generation",
    }
)
"""Values of `metadata.task`."""


def read_task(metadata: object) -> str:
    """Return the task of a front end in the metadata of a request; empty for other requests."""
    task = metadata.get("task") if isinstance(metadata, dict) else None
    return task if isinstance(task, str) and task in _TASKS else ""


def is_task(request: ApiRequest) -> bool:
    """Return True if the model alone should answer: a task, or one message without any tools.

    A request that continues a conversation needs the agent, because its history may be the agent's.
    """
    if request.previous_id or any(each.role is not MessageRole.USER for each in request.messages):
        return False
    if request.options.tool_choice.mode is ToolMode.NONE:
        return True
    if request.options.tools:
        return False
    texts = (request.messages[0].text, request.messages[-1].text)
    return bool(request.task) or any(each.lstrip().startswith(_PROMPT_MARKS) for each in texts)
