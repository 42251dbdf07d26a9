"""How likely the drafted tokens of a session are accepted, whatever drafted them. Changes no session."""

from goodspeed.exact import trees
from goodspeed.fair.selection import Candidate, path_probability, rank
from verify_node.session.draft_tokens import NOTHING, DraftTokens
from verify_node.session.session import Session


def of_draft(session: Session) -> DraftTokens:
    """Returns the rest of the session's newest draft, up to the text's limit; of a tree, all remaining tokens."""
    drafted = session.drafts.newest
    if drafted is None or not session.allows_drafts_of(drafted.source):
        return NOTHING
    if session.verification == "match" and drafted.proposal is not None:  # its client was found to lie since it came
        drafted = drafted._replace(proposal=None)
    return drafted if drafted.parents is not None else drafted.cut(session.max_length)


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


def best(session: Session, drafted: DraftTokens, other: DraftTokens | None) -> DraftTokens:
    """Returns the draft of which more tokens will be accepted."""
    if other is None or not other.tokens:
        return drafted
    other = other.cut(session.max_length)
    if not drafted.tokens:
        return other
    return other if num_expected(session, other) > num_expected(session, drafted) else drafted


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
