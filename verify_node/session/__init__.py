"""What the verify node knows of one generation: its text, its draft, its estimates, and what it refuses.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.core,
verify_node.scheduler, verify_node.model, verify_node.watch.
"""
