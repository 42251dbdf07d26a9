"""Runs the target model: one forward pass over a round, then the match or ratio rule on its logits."""
