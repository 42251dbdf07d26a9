"""How the embedded models were made: corpus, tokenizer, training, and the figures of the model card.

Knows nothing about nodes, sessions or the wire.

Imports nothing of: asyncio, zmq, goodspeed.command, goodspeed.node, goodspeed.wire.
"""
