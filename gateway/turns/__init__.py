"""Turns of the agent, from their preparation to the answer in the chat.

host, services          prepare, recover and look up turns; collaborators that all turns share
run, journal, answer    one turn under way, its commits, the rows and items of its answer
live_answer, status_line, thinking
                        the answer as the chat sees it grow
models, setting, model_names, choices
                        models, tools and limits of a turn; model names in chats; `/model` choices
feeds, feed_events      a turn followed live over HTTP
crash_recovery          turns that a dead process left running
side_turn               requests to a model outside of the conversation, such as `/btw`
"""
