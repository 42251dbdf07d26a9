"""One model split over several processes on one machine (tensor parallelism): their start, orders and end.

Rank 0 is the serving process: it lays out every forward pass, sends the pass to the other ranks as plain integers, and
computes its own part. The other ranks hold their heads of the weights and of the KV cache, and no other state.
"""
