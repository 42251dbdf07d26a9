"""Tokens become bodies and streams, in the format of each API."""
