"""Writes checkpoints in other forms: as GGUF, for OpenVINO and llama.cpp, and padded to the size of a larger model."""
