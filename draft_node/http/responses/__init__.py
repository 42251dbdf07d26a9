"""`POST /v1/responses`, stateless: translates requests to chat completions, and texts to responses."""
