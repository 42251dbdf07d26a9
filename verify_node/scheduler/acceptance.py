"""How likely the drafted tokens of a session are accepted, whatever drafted them. Changes no session."""

from goodspeed.exact import trees
from goodspeed.fair.selection import Candidate, path_probability, rank
from verify_node.session.draft_tokens import DraftTokens
from verify_node.session.session import Session


def calibrated_probabilities(session: Session, drafted: DraftTokens) -> list[float]:
    """Returns each token's calibrated probability given its predecessors, for use under the session's rule."""
    if drafted.is_certain:
        return [1.0] * len(drafted.tokens)
    if session.verification == "ratio" or not drafted.codes:
        return [min(session.acceptance.value, session.acceptance_bound.most)] * len(drafted.tokens)
    if drafted.parents is not None:
        return _probabilities_in_tree(session, drafted, drafted.parents)
    return session.drafts.calibrated(drafted.source, drafted.codes)


def num_expected(session: Session, drafted: DraftTokens) -> float:
    """Returns how many of a draft's tokens will be accepted, by their calibrated probabilities."""
    candidate = Candidate(calibrated_probabilities(session, drafted), parents=drafted.parents)
    ranked = rank(candidate.odds, candidate.parents) if candidate.parents is not None else None
    return float(sum(path_probability(candidate, ranked)))


def _probabilities_in_tree(session: Session, drafted: DraftTokens, parents: tuple[int, ...]) -> list[float]:
    """`calibrated_probabilities` for a tree. Siblings exclude each other, so their probabilities sum to at most 1.

    No alternative is likelier than the first choice.
    """
    found = session.drafts.calibrated(drafted.source, drafted.codes)
    others = trees.alternatives(parents)
    claimed = session.drafts.calibrated("alternative", bytes([drafted.codes[node] for node, _ in others]))
    left: dict[int, float] = {}  # remaining probability, by first choice, after it and its alternatives so far
    for (node, chosen), one in zip(others, claimed, strict=True):
        room = left.get(chosen, 1.0 - found[chosen])
        found[node] = max(0.0, min(one, found[chosen], room))
        left[chosen] = room - found[node]
    return found
