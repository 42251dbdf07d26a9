"""The edge daemon: runs a small draft model, proposes tokens, and streams what the verify node confirms."""
