"""How a round is made: who enters the forward pass, who may draft how much, and what a finished round does.

Knows nothing about messages' bytes, sockets, clocks or tensors.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.arms,
verify_node.core, verify_node.target, verify_node.watch.
"""
