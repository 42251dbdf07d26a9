"""Takes an assistant's text apart while it comes: what it thinks, the tools that it calls, and what it says.

Pieces of text go in, parts come out, and however a text is cut into pieces, the parts are the same. Formats are data,
told from a model's chat template (`formats.py`).
"""
