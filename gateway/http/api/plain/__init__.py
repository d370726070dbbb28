"""Messages that need a special treatment: tasks of front ends, and answers to continue.

tasks       recognition of the title, tag and follow-up requests of front ends
prefill     answers that the agent continues
"""
