"""How the embedded models were made: corpus, tokenizer, training, and the figures of the model card."""
