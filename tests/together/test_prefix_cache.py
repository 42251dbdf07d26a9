"""Texts with a prefix cache at both nodes, of real microscopic models: as without them, and as of the target alone."""

from collections.abc import Sequence

import pytest

from draft_node.core.generation import Generation
from goodspeed.wire.messages import Sampling
from tests.fakes import session_id
from tests.micro import VOCAB
from tests.together.line import Line
from tests.verify_node.model.desk import alone

PROMPT = tuple((7 * i * i) % VOCAB for i in range(30))


def nodes(*, keeps: bool = True, num_pages: int = 256) -> Line:
    return Line(faults=0.0, prefix_cache=keeps, num_pages=num_pages)


def write(line: Line, *requests: Generation) -> list[tuple[int, ...]]:
    """The texts of several requests that come at once."""
    line.run(*requests)
    return [tuple(line.users[request.session_id].tokens) for request in requests]


def num_cached(line: Line) -> list[int]:
    return [user.session.statistics.num_cached for user in line.users.values()]


def request(number: int, sampling: Sampling, prompt: Sequence[int] = PROMPT, salt: bytes = b"alice") -> Generation:
    return Generation(session_id(number), tuple(prompt), sampling, 25, cache_salt=salt)


SAMPLINGS = [Sampling(temperature=0.0), Sampling(temperature=0.8, top_k=9, top_p=0.9, seed=4), Sampling(seed=3)]


@pytest.mark.thorough
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_two_turns_of_a_chat_are_the_targets_own_with_it_and_without(sampling: Sampling) -> None:
    first = alone(request(1, sampling))
    turn = (*PROMPT, *first, 3, 4, 5)
    second = alone(request(2, sampling, turn))
    for keeps in (True, False):
        line = nodes(keeps=keeps)
        assert write(line, request(1, sampling)) == [first]
        assert write(line, request(2, sampling, turn)) == [second]
        assert num_cached(line) == ([0, 52] if keeps else [0, 0])
        assert (line.drafter.caches.num_found > 0) == keeps


def test_texts_are_exact_where_memory_is_short() -> None:
    """Sixteen texts, and room for three: they lose their memory, and pages of theirs are found and evicted."""
    line = nodes(num_pages=45)
    prompts = [PROMPT[: 6 + 3 * (number % 9)] for number in range(16)]
    requests = [request(number, Sampling(seed=number), prompt) for number, prompt in enumerate(prompts)]
    texts = write(line, *requests)
    assert texts == list(map(alone, requests))
    assert line.core.counts.num_preempted > 0
    assert line.core.counts.num_found > 0
