"""One packed forward pass over paged keys and values: pages, layouts, trees, attention."""
