"""The engine of both nodes: checkpoints, a paged KV cache, one packed forward pass of many sessions."""
