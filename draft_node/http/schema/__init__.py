"""Declares each API's bodies: pydantic schemas of requests, answers and errors."""
