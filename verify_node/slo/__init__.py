"""Service level objectives (SLOs) at the verify node: each text's account, what a key may ask for, what a round owes.

Knows nothing about sessions, messages' transport, rounds' making, clocks or tensors.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.core,
verify_node.scheduler, verify_node.session, verify_node.model, verify_node.watch.
"""
