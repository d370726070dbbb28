"""The API that programs made for OpenAI's speak: one core, and a form for each of its ways to ask.

asked       what is asked, in no form's words
chat_form   the form of `/v1/chat/completions`: what comes in, and what goes out
chat_shapes what it takes and gives, as it stands on the wire
bodies      what all bodies have in common; beside: events that are no words of the answer
pictures    pictures inside of a request
story       a turn's news as what a program is told; outcome: how that ends
failures    refusals and errors in OpenAI's shape
requests    from what is asked to a turn that is followed
stream      a turn as an HTTP response, piece by piece or whole
naming      which model a request means
adapter     the platform `api`, as the gateway knows it, and its routes
"""
