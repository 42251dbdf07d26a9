"""How many bytes a form may force in a row, at most, told before it is compiled.

Where only one text may follow, llguidance writes all of it out and tokenizes it, once for each row of a mask: up to
3 µs a byte. A form that may force more than `MAX_RUN` bytes is compiled such that nothing is forced; then a row's cost
does not depend on what follows. The estimate is never too low. It is unbounded where parts are nested in themselves,
and in grammars that import, ignore or intersect. Knows nothing about
llguidance's own limits.

Loads nothing of: torch, zmq.
Imports nothing of: asyncio, time, llguidance, verify_node, draft_node.
"""
