"""How users reach a draft node: the service, its HTTP API, and prompts read from a file or a terminal.

Knows nothing about verification or the wire's bytes.

Imports nothing of: zmq, draft_node.model. Loads nothing of: torch, transformers.
"""
