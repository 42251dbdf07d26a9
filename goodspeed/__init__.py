"""GoodSpeed: fair, lossless speculative decoding between draft nodes at the edge and one verify node.

Contains the code that both nodes share, and the `goodspeed` command.
"""

__version__ = "0.1.0"
