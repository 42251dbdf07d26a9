"""The mathematics of exactness: logits to probabilities to tokens, and the two verification rules.

Everything here is a pure function of tensors, seeds and positions, but for the counts of texts, which are kept while
these grow.
"""
