"""Imports torch first: once transformers has been imported without it, as for a tokenizer, it stays without."""

import torch  # noqa: F401
