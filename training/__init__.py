"""Makes `smollm2-draft`: prompts, training, and the figures of the model card."""
