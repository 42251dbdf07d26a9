"""Reads GGUF files, the format of llama.cpp: settings, tokenizer and stored weights."""
