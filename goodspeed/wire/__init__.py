"""The wire: bounded messages, their encoding, and the channels and links that move them.

Also the keys, addresses and descriptor limits that both ends need before a message moves.
"""
