"""The draft node's rules as state machines: sessions and the link to the verify node; time is an argument.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, draft_node.model,
draft_node.http, draft_node.service.
"""
