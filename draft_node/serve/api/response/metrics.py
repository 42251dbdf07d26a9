"""What drafting did for one text, in the shape in which vLLM tells it and load tools read it."""

from collections import Counter
from collections.abc import Sequence

from draft_node.serve.api.response.choices import Choice
from draft_node.serve.api.response.responses import Metrics, SpeculativeDecoding


def metrics_of(choices: Sequence[Choice]) -> Metrics | None:
    """Returns the metrics of a request's only text; None for several texts, as vLLM does, and without drafts."""
    if len(choices) != 1 or choices[0].ended is None or not choices[0].ended.statistics.drafts:
        return None
    return Metrics(speculative_decoding=_told(choices[0].ended.statistics.drafts))


def _told(drafts: Counter[tuple[int, int]]) -> SpeculativeDecoding:
    """drafts: how many had so many tokens verified, and so many accepted."""
    longest = max(num_verified for num_verified, _ in drafts)
    histogram = [0] * (longest + 1)
    num_drafted = num_accepted = 0
    for (verified, accepted), count in drafts.items():
        histogram[accepted] += count
        num_drafted += count * verified
        num_accepted += count * accepted
    num_steps = drafts.total()
    return SpeculativeDecoding(
        mean_acceptance_length=1 + num_accepted / num_steps,
        draft_acceptance_rate=num_accepted / num_drafted,
        acceptance_histogram=histogram,
        num_spec_steps=num_steps,
        num_accepted_draft_tokens=num_accepted,
        num_draft_tokens=num_drafted,
        num_spec_tokens=longest,
    )
