"""Explanations of the demo's figures, for people who see them for the first time. Computes nothing."""

OF_FIGURES = """\
goodput: a client's tokens for each round from its first to its last; a round that passes while it drafts gives it none,
  so it may be below 1
log-utility: sum of ln(goodput) over the clients; it is higher when they get more tokens a round,
  and when none is left behind; rounds of the preset paper are longer: compare it with others' by that of tokens / s
Jain index: 1 when all clients have the same goodput, 1/n when one of n has everything
worst client's share: of the goodput of all; 1/n when all have the same
uplink bytes: what the draft nodes send, for each token of theirs that the target checks"""

OF_ONE_RUN = f"""\
rounds: in all; for a client those that gave it tokens, of those from its first to its last
acceptance: share of a client's drafted tokens that the target agreed with
{OF_FIGURES}
accepted of drafted tokens: by what drafted them: a draft model, the n-gram index of the draft node (ngram),
  or the verify node, from a text's own earlier part (self)
verify node's time: receive is waiting for drafts, forward the target's pass, verify comparing the drafts with it,
  schedule sharing out the next budget, send sending the results"""

OF_COMPARISON = f"""\
{OF_FIGURES}
gradient, fixed, random: who may draft how much; of that a round verifies what brings most tokens for its time,
  with gradient each divided by its client's goodput
paper: --preset paper, whose rounds wait for every draft and verify it whole by the ratio rule;
  its texts are others"""
