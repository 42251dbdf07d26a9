"""The draft node's HTTP server: the OpenAI API over a `Service`."""
