"""OpenAI's `/v1/responses`.

body        decoder of requests; `shapes` holds the wire types
form        encoder of an answer, as events or whole
routes      the endpoints; `input_items` lists the input of a response
"""
