"""This room decides, by an `Order`, which best-effort sessions keep their memory where it does not suffice for all.

- `accounts.py`: what each session has had of the rounds' time, and how long it has waited for memory. Nobody else
  writes that.
- `seating.py`: who gives up memory and who waits for it, of plain numbers.
- `places.py`: both for the sessions of a verify node; `packing/packing.py` asks before it fills a round.

Promised sessions go first and never give way, whatever the order is. Pure: times are arguments. Knows nothing about who
gets drafted tokens, messages, clocks or tensors.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.arms,
verify_node.core, verify_node.model, verify_node.watch.
"""
