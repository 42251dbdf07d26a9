"""What must hold in the verify node's state between any two events: of one session or client, and between all parts.

It reads every room's state and changes none. `VerifyCore.validate` asks for all of it. Knows nothing about rounds'
making, sockets, clocks or tensors.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.arms,
verify_node.model, verify_node.watch.
"""
