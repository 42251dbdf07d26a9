"""Forms that a text has to keep: a JSON schema, a regular expression, a choice, a grammar; by llguidance.

`compile_constraint` makes a `Grammar` of a `Constraint`, within bounds. A `Matcher` follows one output, and tells which
tokens may come next at each row of a draft, and which must. Both are functions of constraint and text alone, so a
masked text stays a function of target, prompt, seed and constraint. Both nodes use this room: the verify node's masks
decide the text, the draft node's make its drafts agree.

Knows nothing about logits, sessions' states or messages.

Loads nothing of: torch, zmq.
Imports nothing of: asyncio, time, verify_node, draft_node.
Only rooms that say so import: llguidance.
"""
