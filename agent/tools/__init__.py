"""Tools for the model, and the execution of tool calls.

contract, define, risk   the `Tool` record, the decorator `tool` and the risk levels
questions                questions of a running tool to a person
output, received         results with files, and the folder for them
registry                 all tools, and the enabled families
gate, names              validation of calls; repair and suggestion of tool names
run                      execution of calls, with batches, deadline, loop_guard, repeats, spill and
                         done_list
files, drafts, clock     built-in tools, and drafts of files whose writing was cut off
masks                    secrets that are put back into files that the model writes
confine, text, blocking  access to the workspace only; text helpers; work in threads
mcp                      tools of MCP servers
"""
