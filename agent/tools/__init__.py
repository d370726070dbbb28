"""Tools the model may call, and the gate that every call passes.

contract, define  what a tool is, and how one is made from a function; risk: what it may do
registry          which there are, and which families are enabled
gate              may this call run? names: the tool that was meant
run               carries calls out: batches beside each other, deadline, guard against loops,
                  twins of calls that were made before, spill of long results, tally for people
files             read, write, edit, search, confined to the workspace (confine); `text` knows what
                  a text is in a file, `blocking` does the work in threads
drafts            files whose writing was cut off
clock             what time it is
mcp               tools of other programs
"""
