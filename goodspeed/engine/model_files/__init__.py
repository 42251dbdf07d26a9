"""Finds the files that `--model` and `--tokenizer` name: folders, models of the hub, GGUF files. Loads no torch."""
