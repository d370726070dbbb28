"""Agent loop: answers one user message, from the conversation to a stream of events.

loop            the steps of a turn: request, tool calls, recovery, final answer
turn            contract between the loop and its caller; `events` and `errors` of a turn
step            visible text and next request of one model answer
attempt         one request to the model under the `watchdog`'s timeouts
verdict         judgment of an attempt; `salvage` sorts its calls, `continuation` picks an action
route           target of the next request; `transcript` is the conversation sent to it
client_tools    tools that an API client runs; `client_calls` are their calls in the history
answer_format   check of an answer against the format of a request; `json_schemas` checks the schema
compaction      replaces the oldest rows of a conversation by a summary
picture_loader  reads attached pictures from the workspace
probe           checks that a configured model is reachable and can call tools
settings        configuration keys of models, tools and voice
answer          assembles the chunks of a stream into one answer
request         builds the request from the conversation
model           provider contract, facts about models, fallback and cost
providers       one module or package per model protocol
tools           tool families, and the checks before a call runs
web             fetches pages from the public internet only
"""
