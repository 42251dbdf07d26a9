"""GoodSpeed: fair, lossless speculative decoding between draft nodes at the edge and one verify node.

This package is what both nodes share: the wire, the mathematics, the policies and the engine. It imports neither node.
"""

__version__ = "0.1.0"
