"""One packed forward pass over a paged KV cache: pages, layouts, trees, attention."""
