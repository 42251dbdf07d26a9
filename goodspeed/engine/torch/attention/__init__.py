"""Attention over paged keys and values: what models call, gathered groups, a Triton kernel in CUDA graphs."""
