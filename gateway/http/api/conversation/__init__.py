"""The conversation of a request: the stored session or answer that it continues, or one of its own.

named_session   the session that the headers name, and whether its history agrees
client_results  results of client tools in the messages of a request, and in stored histories
choice          the decision, from the request and the stored facts
lookup          reads the stored facts
"""
