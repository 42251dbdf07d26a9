"""Why a session cannot go on, as the target says it and the core understands it. Imports nothing."""

NOT_NUMBERS = "its logits are not numbers"
"""Then what the session has in memory may be none, either; whatever else the target says is about rules and forms."""
