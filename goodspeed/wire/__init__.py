"""The wire between draft nodes and the verify node: messages, their encoding, channels and transports.

Also contains the keys, addresses and descriptor limits that both ends need before they connect.
"""
