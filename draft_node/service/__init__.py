"""Writes texts for users of a draft node: prompts encoded, sessions begun, tokens made into pieces of text.

HTTP and the console are its users.
"""
