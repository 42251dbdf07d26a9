"""Checkpoints as files of other programs: GGUF, which llama.cpp and what is built on it read."""
