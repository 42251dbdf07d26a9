"""The channels of a draft node's links, and what waits to be sent on each.

- `lines.py`: a channel for each link, made and ended as the core says.
- `outgoing.py`: a queue in front of one channel.

Loads nothing of: torch, transformers, fastapi, uvicorn, prometheus_client.
Imports nothing of: draft_node.model, draft_node.http, draft_node.service.
"""
