"""The draft node's rules as state machines: sessions and the link to the verify node; time is an argument."""
