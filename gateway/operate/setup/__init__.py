"""`holdfast setup`: from a token and a key to a gateway that answers.

wizard      the whole way: what is asked in which order, then what is done
asking      what a question is, and who may answer it; yes, numbers and amounts
terminal    a person answers; flags: the command line does, and nobody else
bots        asks for the platforms and their tokens, and shows each bot's name
model       asks which model answers; known: what a key and an address tell of a service
servers     looks for model servers on this machine
checks      asks platforms and services whether it all works
budget      asks what a day may cost
draft       the configuration as it is to be, what people wrote in it untouched
places      where the configuration goes, and who may read it; files: all written, or none
owner       waits for the first message, which makes its sender the owner
start       the service, or the gateway in this terminal
"""
