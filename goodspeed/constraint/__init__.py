"""Constraints of texts: a JSON schema, a regular expression, a choice, a grammar; by llguidance.

`Constraints` compiles them, after a trial in a process of its own that may be killed (`trial.py`). A `Matcher` follows
one text, and returns which tokens may come next at each row of a draft. Masks are functions of constraint and text
alone, so a masked text stays a function of target, prompt, seed and constraint. Both nodes use this room: the verify
node's masks decide the text, the draft node's make its drafts agree.
"""
