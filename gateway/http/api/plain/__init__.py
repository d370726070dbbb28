"""Plain requests: tasks that the model answers without the agent, and prompts without roles.

tasks       recognition of the title, tag and follow-up requests of front ends
prefill     answers that the agent continues
completions codec of the older `/v1/completions`
"""
