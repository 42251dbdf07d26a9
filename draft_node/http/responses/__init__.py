"""`POST /v1/responses`, without state: a translation onto chats.

Only rooms that say so import: fastapi, starlette, pydantic.
"""
