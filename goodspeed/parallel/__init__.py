"""One model split over several processes on one machine (tensor parallelism): how they start, are told, and end.

Rank 0 is the process that serves. It lays out every forward pass, tells it to the others as plain integers, and
computes its own part. The others hold their heads of the weights and of the keys and values, and no other state. Knows
nothing about rounds, sessions or the wire.
"""
