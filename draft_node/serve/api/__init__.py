"""The draft node's HTTP face: the OpenAI API over a `Service`. Knows HTTP; sessions and nodes are the service's."""

from draft_node.serve.api.app import create_app

__all__ = ["create_app"]
