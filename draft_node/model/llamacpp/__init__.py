"""Drafts with a running `llama-server` of llama.cpp over HTTP, without torch."""
