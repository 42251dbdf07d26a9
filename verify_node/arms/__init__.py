"""Experiments with the ways of drafting ("arms"): which of them brings the most while users are served.

To all but `switching.py`, which tells them of sessions and carries out what they say, a round is an `ArmRound`: its
tokens, its steps and its seconds. Knows nothing about how drafted tokens are chosen, messages, clocks or tensors.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.core,
verify_node.model, verify_node.watch.
"""
