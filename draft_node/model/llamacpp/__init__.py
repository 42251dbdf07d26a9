"""Drafts with llama.cpp, without torch: in this process (`xllamacpp`), or at a running `llama-server` over HTTP."""
