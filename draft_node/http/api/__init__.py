"""The routes of the HTTP API: each names its schema, its translation and the shape of its answer."""
