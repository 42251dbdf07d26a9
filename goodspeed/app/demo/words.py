"""Explanations of the demo's figures, for people who see them for the first time. Computes nothing."""

OF_FIGURES = """\
goodput: tokens per round, over all rounds from a client's first to its last
log-utility: sum of ln(goodput) over the clients; it is higher when they get more tokens a round,
  and when none is left behind; compare it under the same --rounds and clients only
Jain index: 1 when all clients have the same goodput, 1/n when one of n has everything
uplink bytes: what the draft nodes send for each token that they draft"""

OF_ONE_RUN = f"""\
rounds: in all; for a client those that checked its text and gave it tokens
acceptance: share of a client's drafted tokens that the target agreed with
{OF_FIGURES}
accepted of drafted tokens: by what drafted them: a draft model, the n-gram index of the draft node (ngram),
  or the verify node, from a text's own earlier part (self)
verify node's time: receive is waiting for drafts, forward the target's pass, verify comparing the drafts with it,
  schedule sharing out the next budget, send sending the results"""

OF_ARMS = """
best arm: the way of drafting that brought the most, with so many texts open, as far as was tried: no drafts (none),
  n-gram drafts (ngram), or those of models, too (model); what it brought is told with its standard error"""


def policy(name: str, cost: str) -> str:
    """Returns the policy's name, and with `gradient` whether it is the daemons' default form of it."""
    if name != "gradient":
        return f"{name} policy"
    if cost == "auto":
        return "gradient policy (it weighs time, as the daemons do)"
    return "gradient policy (the paper's Eq. 5; the daemons weigh time too: --cost auto)"
