"""What every engine's KV cache has: its pages, the prefix cache, its size, and the chunks of a pass."""
