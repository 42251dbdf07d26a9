"""`POST /v1/responses`, without any state: a translation onto chats, and their answers as items and events.

What a request says becomes a chat request, so that both are understood, checked and written by the same code. Knows
nothing about prompts, sampling or sessions.

Only rooms that say so import: fastapi, starlette, pydantic.
"""
