"""What enters one forward pass: sessions' texts and drafts, packed within the budget, the token limit and the memory.

`packing.plan` fills a `round.Round`. What is packed of a session is what it has not been fed, and the drafted tokens
that are given; who gives way where memory is short is asked of `places`. Knows nothing about when a round starts, which
drafted tokens are worth it, what a finished round does, messages' bytes, sockets, clocks or tensors.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.arms,
verify_node.core, verify_node.rounds, verify_node.model, verify_node.watch.
"""
