"""What a request is answered with: its texts written, as a body or a stream, in OpenAI's formats.

Knows nothing about routes, or about how a body is read.

Imports nothing of: draft_node.serve.api.chat, draft_node.serve.api.completions, draft_node.serve.api.request.body.
Only rooms that say so import: fastapi, starlette, pydantic.
"""
