"""Pages KV caches, for every engine: pages, the prefix cache, the size of a cache, the chunks of a pass."""
