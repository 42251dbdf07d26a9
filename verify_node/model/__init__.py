"""Runs the target model: one forward pass over a round, and what the two rules decide on its logits."""
