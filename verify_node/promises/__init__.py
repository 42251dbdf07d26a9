"""Which open sessions are promised their service level, and what the next round owes them.

It stands between the core, which knows sessions, and `verify_node/admission`, which knows none.

- `promises.py`: the book of promises, kept in step with the sessions.
- `requests.py`: what a session asks for.
- `shares.py`: whose requests are decided on first: no client is promised more than its weight's share before others.
- `floor.py`: what promises leave to clients that wait with best effort, in each round.
- `capacity.py`: how much rounds carry for sure, by the model of their time.
- `counted.py`: which drafts promises count on, if they do.

A session that asks is decided on before it enters a round, together with all that asked since the last decision.
`verify_node/core/admitting.py` carries out what is decided, and tells it. Times are arguments. Knows nothing about
messages.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.core,
verify_node.model, verify_node.watch.
"""
