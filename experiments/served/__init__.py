"""Experiments with real nodes: whose chats they serve, their runs, and the figures of what was recorded of these."""
