"""What a session drafts: asked, ahead of a verdict, unasked or by n-grams; and which of it is in flight.

Knows nothing about a session's states, or about when anything is sent.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, draft_node.model,
draft_node.serve, draft_node.text.
"""
