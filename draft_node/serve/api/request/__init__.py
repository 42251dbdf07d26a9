"""What a request says: its body read and checked, the prompts and texts that it asks for, and the errors in it.

Knows nothing about routes, or about how a request is answered.

Imports nothing of: draft_node.serve.api.chat, draft_node.serve.api.completions, draft_node.serve.api.response.
Only rooms that say so import: fastapi, starlette, pydantic.
"""
