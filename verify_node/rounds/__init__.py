"""What is decided about rounds: when one starts, which drafted tokens it verifies, what a finished one does, who may
draft how much next.

Knows nothing about messages' bytes, sockets, clocks or tensors.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.arms,
verify_node.core, verify_node.model, verify_node.watch.
"""
