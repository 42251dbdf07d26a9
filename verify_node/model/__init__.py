"""Runs the target model: one forward pass over a round, and what the two rules decide on its logits.

Imports nothing of: asyncio, zmq, verify_node.core, verify_node.watch.
"""
