"""One generation as the verify node knows it: its text, draft, estimates, and refusals.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.core,
verify_node.scheduler, verify_node.model, verify_node.watch.
"""
