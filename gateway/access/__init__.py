"""Access: the people who may use the agent, and their rights.

policy    Sans-IO: roles, and the decision about an event
entries   Sans-IO: entries of the access lists, parsed from text
pairing   Sans-IO: pairing and claim codes
api_keys  Sans-IO: API keys: text and hash, conversations, and the sender of a request
key_store the stored API keys
people    the stored people with access, and code handling
claim     Sans-IO: the instructions for becoming the owner
settings  `[access]`
"""
