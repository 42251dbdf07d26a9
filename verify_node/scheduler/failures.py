"""Names why a session cannot go on, as the target says it and the core understands it. Imports nothing.

The checks on a machine with a GPU import it, where neither msgspec nor anything else of ours is installed.
"""

NOT_NUMBERS = "its logits are not numbers"
"""Then what the session has in memory may be none, either; whatever else the target says is about rules and forms."""

IMPOSSIBLE = "the agreement of its draft, or the evidence, is a number that it cannot be"
"""What the core says of an outcome that would spoil its estimates; nothing that came with it is trusted."""
