"""What happens to a session's opening before the core sees it: a constraint is compiled beside the event loop.

Knows nothing about what becomes of a session, and changes nothing.

Loads nothing of: torch.
Imports nothing of: verify_node.core, verify_node.rounds, verify_node.model.
"""
