"""Files in both directions, and speech to text.

incoming       Sans-IO: names and paths of received files
fetch          downloads received files into the workspace
cleanup        removes old received files
outgoing       sends files of the agent to a chat
sent_secrets   finds secrets in files that cannot be masked
speech         Sans-IO: the interface of speech to text
transcription  speech to text through an OpenAI-compatible service
"""
