"""A body becomes one request: every API's parameters become a chat or a completion, and this its `Generation`s."""
