"""What an answer says about where its text came from: accepted drafts, and what the draft model wrote alone.

The latter is marked whether anybody asks or not: it is from another distribution.
"""

from draft_node.serve.api.response.responses import ChatChoice, ChatChunkChoice, CompletionChoice, Marked, MarkedSpan
from draft_node.serve.service import Ended, Piece
from draft_node.text.spans import Span


def on_chunk(choice: ChatChunkChoice | CompletionChoice, item: Piece | Ended, *, spans: bool) -> None:
    """Marks one choice of a chunk; `spans`: by spans, too."""
    if isinstance(item, Ended):
        on_whole(choice, item)
        return
    marked = Marked()
    if spans:
        marked.spans = [_span(span) for span in item.spans]
    if any(span.local for span in item.spans):
        marked.local = True
    if marked.model_fields_set:
        choice.goodspeed = marked


def on_whole(choice: ChatChoice | ChatChunkChoice | CompletionChoice, ended: Ended | None) -> None:
    """Marks a choice whose text is complete."""
    if ended is not None and ended.num_local:
        choice.goodspeed = Marked(local_tokens=ended.num_local)


def _span(span: Span) -> MarkedSpan:
    marked = MarkedSpan(text=span.text, accepted=span.accepted)
    if span.local:
        marked.local = True
    return marked
