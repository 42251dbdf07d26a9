"""Parses an assistant's text while it streams: reasoning, tool calls and content.

Pieces of text go in, parts come out; the parts do not depend on where the text was split into pieces. Formats are data,
detected from a model's chat template (`formats.py`).
"""
