"""Explanations of the demo's figures, for people who see them for the first time. Computes nothing."""

OF_FIGURES = """\
goodput: a client's tokens for each round from its first to its last; a round that passes while it drafts gives it none,
  so it may be below 1
log-utility: sum of ln(goodput) over the clients; it is higher when they get more tokens a round,
  and when none is left behind; compare it under the same --rounds and clients only
Jain index: 1 when all clients have the same goodput, 1/n when one of n has everything
uplink bytes: what the draft nodes send, for each token of theirs that the target checks"""

OF_ONE_RUN = f"""\
rounds: in all; for a client those that gave it tokens, of those from its first to its last
acceptance: share of a client's drafted tokens that the target agreed with
{OF_FIGURES}
accepted of drafted tokens: by what drafted them: a draft model, the n-gram index of the draft node (ngram),
  or the verify node, from a text's own earlier part (self)
verify node's time: receive is waiting for drafts, forward the target's pass, verify comparing the drafts with it,
  schedule sharing out the next budget, send sending the results"""

OF_COMPARISON = {
    "continuous": """
In continuous rounds, which wait for nobody long, equal shares (fixed) are often as fair as Eq. (5) (gradient), or
fairer: a client misses rounds while it drafts, more of them for a longer draft, and Eq. (5) does not count that.""",
    "barrier": """
In barrier rounds everybody takes part in every round, as Eq. (5) (gradient) supposes.""",
}
"""What is to be known of a comparison, by the kind of its rounds."""

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
