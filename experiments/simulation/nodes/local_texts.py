"""Texts that the target and the draft model wrote in turns (`--fallback local`): what each had to write.

Both are functions of the text before a token, so every token has one right value, whoever wrote those before it.
"""

from experiments.simulation.nodes.users import Generation
from experiments.simulation.texts.models import drawn
from experiments.simulation.texts.text import draw, feed, feed_all, start


def by_both(generation: Generation, context_len: int, target: int) -> tuple[int, ...]:
    """The text that the user of this generation should have got, given which of its tokens the draft model wrote.

    A token is judged by the delivered ones before it, so one that is wrong makes no other wrong. After the last one
    comes what the target would have written on, unless the text might end there.
    """
    request = generation.session.request
    writers = _Writers(generation, target)
    expected: list[int] = []
    for token, is_local in zip(generation.delivered, generation.local, strict=True):
        right = writers.next(is_local=is_local)
        if right in request.stop_ids:
            return tuple(expected)  # the text should have ended here
        expected.append(right)
        writers.feed(token)
    if generation.finish is None or _may_end(generation, writers, context_len):
        return tuple(expected)
    while len(expected) < min(request.max_tokens, context_len - len(request.prompt)):
        right = writers.next(is_local=False)
        if right in request.stop_ids:
            break
        expected.append(right)
        writers.feed(right)
    return tuple(expected)


class _Writers:
    """The target and the draft model of one text, and how far it has come."""

    def __init__(self, generation: Generation, target: int) -> None:
        request = generation.session.request
        self._acceptance = generation.acceptance
        self._target = feed_all(start(request.sampling.seed, target), request.prompt)
        self._draft = feed_all(start(request.sampling.seed), request.prompt)  # made for the first target
        self._length = len(request.prompt)

    def next(self, *, is_local: bool) -> int:
        """Returns the next token, by the draft model if `is_local`, else by the target."""
        if is_local:
            return drawn(self._draft, self._acceptance.rate(self._length, 0, True))[0]
        return draw(self._target)[0]

    def feed(self, token: int) -> None:
        self._target, self._draft = feed(self._target, token), feed(self._draft, token)
        self._length += 1


def _may_end(generation: Generation, writers: _Writers, context_len: int) -> bool:
    """True if a text that was reported complete may end here: it is full, or its last writer ended it."""
    request, ended = generation.session.request, generation.ended
    if ended is None or generation.finish is None:
        return False
    if generation.finish.reason == "length":
        room = min(context_len, ended.context_len if ended.was_local else context_len) - len(request.prompt)
        return len(generation.delivered) >= min(request.max_tokens, room)
    return writers.next(is_local=ended.was_local) in request.stop_ids
