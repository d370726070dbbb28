"""One turn of the agent: from a conversation to a stream of events.

loop            the steps of a turn: ask the model, run its tools, until there is an answer
turn            what a turn is given and asked: the contract with its caller
step            what one answer has come to, and how the next request carries it on
route           whom a turn asks, and what it learns of them; transcript: what it shows them
attempt         one request to the model, read under the watchdog
events, errors  what a turn tells, and what can go wrong, sorted by what to do about it
settings        what can be configured
prompt          how a conversation is shown to a model, and what is said to carry an answer on
attachments     what a model reads about the files that came with a message; `pictures` says which
                of them it is shown, `album` reads these
accumulate      chunks to one answer; `slots` puts tool calls together, `think` finds thinking,
                `thoughts` keeps it for the service, `seam` joins the pieces of a cut text
verdict         what a request came to; `salvage` sorts its calls; `continuation` decides what next;
                `announcement` sees a promise that no call follows
probe           whether a model can be used: reached, allowed, there, calling tools
watchdog        how long a model may stay silent; `degeneration` sees when it repeats itself
experience      what is learned of a model; `breaker` leaves a hanging one alone, `fallback` says
                who is next, `traits` what is known by name
context         when and what to summarise; `compaction` does it, `tokens` estimates
spend           what it costs; digest: which requests said the same
partial_json    reads the beginning of a cut call; `repair` mends what loses nothing
providers       one module or package per model protocol, behind one contract
web             fetches from the public internet alone
tools           what the agent can do, one family per file, behind one gate
"""
