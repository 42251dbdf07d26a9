"""What `--model` and `--tokenizer` may name, and where its files are: folders, the hub, GGUF files. Loads no torch."""
