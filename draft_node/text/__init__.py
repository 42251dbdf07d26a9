"""A user's text: prompts encoded, tokens made into pieces up to a stop string, chats taken apart, origins of pieces.

Also the texts that n-gram drafts come from: folders of documents, and the file of texts that are over.

Knows nothing about HTTP, sockets or tensors.

Loads nothing of: torch, transformers.
Imports nothing of: zmq, fastapi, starlette, uvicorn, draft_node.model, draft_node.serve.
"""
