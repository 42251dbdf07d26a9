"""The draft node's HTTP API: the OpenAI API over a `Service`.

Knows nothing about sessions, nodes or models; those are the service's.

Only rooms that say so import: fastapi, starlette, pydantic.
"""

from draft_node.serve.api.app import create_app

__all__ = ["create_app"]
