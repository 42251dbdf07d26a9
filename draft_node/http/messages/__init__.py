"""`POST /v1/messages` and `/v1/messages/count_tokens`: translates Anthropic's API to chat completions, and back."""
