"""The draft node's HTTP side: the OpenAI API over a `Service`."""
