"""One model split over several processes on one machine (tensor parallelism): how they start, take orders, and end.

Rank 0 is the process that serves: it lays out every forward pass, sends it to the others as plain integers, and
computes its own part. The others hold their heads of the weights and of the KV cache, and no other state.
"""
