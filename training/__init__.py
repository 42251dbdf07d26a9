"""Makes the embedded models: corpus, tokenizer, training, and the figures of the model card."""
