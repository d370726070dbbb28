"""The API that programs made for OpenAI's speak: one core, and a form for each of its ways to ask.

asked       what is asked, in no form's words
chat_form   the form of `/v1/chat/completions`: what comes in, and what goes out
chat_shapes what it takes and gives, as it stands on the wire
responses_body, responses_form  that of `/v1/responses`: what comes in; what goes out
responses_shapes  what it takes and gives, as it stands on the wire
responses_routes  what is served below `/v1/responses`; input_items: what was sent, as it is listed
bodies      what the bodies of all forms have in common
beside      events that are no words of an answer
kept        answers that lie in the store: found by their ids, told once more, forgotten
pictures    pictures inside of a request; remote: those that it only points at
story       a turn's news as what a program is told; outcome: how that ends
failures    refusals and errors in OpenAI's shape
requests    from what is asked to a turn that is followed
stream      a turn as an HTTP response, piece by piece or whole
naming      which model a request means
adapter     the platform `api`, as the gateway knows it, and its routes
"""
