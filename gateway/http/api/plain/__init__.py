"""Requests that the model answers alone, without the agent's tools and prompt.

tasks       recognition of the title, tag and follow-up requests of front ends
"""
