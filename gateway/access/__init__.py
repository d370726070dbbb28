"""Access: the people who may use the agent, and their rights.

policy    Sans-IO: access entries, roles, and the decision about an event
pairing   Sans-IO: pairing and claim codes
people    the stored people with access, and code handling
claim     Sans-IO: the instructions for becoming the owner
settings  `[access]`
"""
