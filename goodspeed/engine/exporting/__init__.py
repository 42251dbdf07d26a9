"""Exports checkpoints to GGUF, the format of llama.cpp and of programs built on llama.cpp."""
