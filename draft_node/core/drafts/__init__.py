"""What a session drafts beyond its text, by its draft model and by n-grams.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, draft_node.model,
draft_node.http, draft_node.service.
"""
