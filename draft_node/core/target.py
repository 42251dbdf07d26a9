"""Whether the target model that is there, at its verify node, may go on with a session's text. No I/O."""

from draft_node.core.actions import Fail, Finish, Request

TARGET_CHANGED = "the verify node has another target model now, and a text is not continued by another; ask again"


def text_end(
    num_prompt: int, num_tokens: int, context_len: int | None, *, before: str | None, now: str
) -> Finish | Fail | None:
    """Why a text of so many tokens, its prompt included, does not go on; None: it does.

    A session is one target's: it fails when another one is there, since what that one would write, and what would
    end its text, is not known here. Whoever asked may begin another session.

    context_len: of the target that is there; None: not known. before, now: fingerprints of the text's target, None
    until there was one, and of the one that is there.
    """
    if before not in (None, now):
        return Fail("target_changed", TARGET_CHANGED)
    if context_len is None or num_tokens < context_len:
        return None
    if num_tokens > num_prompt:
        return Finish("length")  # the draft model may have written some of it alone
    what = f"{num_tokens} tokens leave no room in the target's context of {context_len}; shorten the prompt"
    return Fail("prompt", what)


def unserved(request: Request, *, constraints: bool, promises: bool, begins: bool) -> Fail | None:
    """Why a verify node that serves these cannot write the text as it is asked for; None: it can.

    begins: nothing of the text is there yet. One that is under way goes on though its SLO is not promised.
    """
    if request.constraint is not None and not constraints:
        return Fail("unsupported", "the verify node does not know structured output; ask without")
    insists = request.slo is not None and request.otherwise == "refuse" and begins
    if insists and not promises:
        return Fail("not_promised", "this verify node promises no service level; ask for best_effort otherwise")
    return None
