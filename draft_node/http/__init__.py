"""The draft node's HTTP side: the OpenAI API over a `Service`.

Imports nothing of: zmq, draft_node.model. Loads nothing of: torch, transformers.
Only rooms that say so import: fastapi, starlette, pydantic.
"""
