"""Structured output with llguidance: JSON schemas, regular expressions, choices and grammars.

`Constraints` compiles a constraint after a trial in a separate process, which may be killed (`trial.py`). The result is
a `Matcher`, which follows one text and returns the tokens allowed at each row of a draft. A mask depends on constraint
and text alone, so a masked text depends only on target, prompt, seed and constraint. Both nodes use this package: the
verify node's masks decide the text; the draft node's masks raise the acceptance rate.
"""
