"""The draft node's state machines: sessions and links to verify nodes. No I/O; time is an argument."""
