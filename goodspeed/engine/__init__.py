"""The engine of both nodes: checkpoints, a paged pool of keys and values, one packed forward pass of many sessions."""
