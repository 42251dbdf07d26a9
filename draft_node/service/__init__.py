"""Writes texts for users of a draft node: prompts encoded, sessions begun, tokens made into pieces of text.

HTTP and the console are its users.

Loads nothing of: torch, transformers.
Imports nothing of: zmq, fastapi, starlette, uvicorn, pydantic, draft_node.model, draft_node.http.
"""
