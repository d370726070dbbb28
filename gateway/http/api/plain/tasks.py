"""Sans-IO: recognition of requests that front ends send on their own, for titles, tags or searches."""

from agent.model.answer_options import ToolMode
from gateway.http.api.asked import ApiRequest
from sessions.records import MessageRole

_PROMPT_MARK = "### Task:"
"""Beginning of the prompts with which Open WebUI asks for titles, tags and follow-up questions."""

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
    return bool(request.task) or request.messages[-1].text.lstrip().startswith(_PROMPT_MARK)
