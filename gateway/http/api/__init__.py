"""The API for clients of OpenAI and Anthropic: one core, and a codec for each endpoint.

adapter     the platform `api`; `routes` are its endpoints
requests    from a decoded request (`asked`) to a turn with a subscription; `models` resolves names
chat_form, chat_shapes  `/v1/chat/completions`: codec, wire types
responses_body, responses_form, responses_shapes  `/v1/responses`: decoder, encoder, wire types
responses_routes  the endpoints below `/v1/responses`; `input_items` lists the input of a response
client_tools, client_results  tools that the client runs, and their results in messages and histories
answer_options  format and sampling of an answer
messages    the package of Anthropic's `/v1/messages`
plain       the package of tasks that the model answers without the agent, and of `/v1/completions`
bodies, failures  decoding errors and refusals, shared by all endpoints
pictures    pictures inside a request; `fetch_pictures` downloads and stores them
pieces, endings, tool_events  turn events, turn outcomes and tool events in API terms
stream      a turn as an HTTP response, streamed or whole
answers     stored answers: lookup by id, replay, deletion
"""
