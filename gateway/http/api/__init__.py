"""The API for clients of OpenAI and Anthropic: one core, and a codec for each endpoint.

adapter     the platform `api`; `routes` are its endpoints
endpoint    from an HTTP request to the response that follows its turn, for all endpoints
requests    from a decoded request (`asked`) to a turn with a subscription; `models` resolves names
conversation  the package that chooses the conversation of a request
chat, responses  the packages of OpenAI's `/v1/chat/completions` and `/v1/responses`
messages    the package of Anthropic's `/v1/messages`
client_tools  tools that the client runs
answer_options  format and sampling of an answer
plain       the package of tasks that the model answers without the agent, and of continued answers
bodies, failures  decoding errors and refusals, shared by all endpoints
pictures    pictures inside a request; `fetch_pictures` downloads and stores them
pieces, endings, tool_events  turn events, turn outcomes and tool events in API terms
stream      a turn as an HTTP response, streamed or whole
answers     stored answers: lookup by id, replay, deletion
"""
