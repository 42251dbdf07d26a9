"""A draft model whose tokens come too late rests, and is tried again."""

import pytest

from draft_node.core.drafts.resting import LEAST_SHARE, MAX_REST, REST, TRIAL, Resting


def write(resting, num_tokens, num_accepted=0):
    """The texts grow by one token after the other; the last ones are the draft model's."""
    for place in range(num_tokens):
        resting.observe(1, int(place >= num_tokens - num_accepted))


def test_a_model_of_which_nothing_is_used_rests_ever_longer_and_is_tried_in_between():
    resting = Resting(num_texts=1)
    rests: list[int] = []
    for _ in range(6):
        write(resting, TRIAL)
        assert resting.is_resting
        num_tokens = 0
        while resting.is_resting:
            write(resting, 1)
            num_tokens += 1
        rests.append(num_tokens)
    assert rests == [REST, 2 * REST, 4 * REST, MAX_REST, MAX_REST, MAX_REST]


def test_a_model_that_is_used_goes_on_and_its_next_rest_is_short():
    resting = Resting(num_texts=1)
    write(resting, TRIAL)
    write(resting, REST)
    write(resting, TRIAL)  # the next rest would be twice as long
    write(resting, 2 * REST)
    write(resting, TRIAL, num_accepted=1)
    assert not resting.is_resting, "one of so few tokens is enough"
    write(resting, TRIAL)
    write(resting, REST)
    assert not resting.is_resting, "it has rested for the shortest time"


@pytest.mark.parametrize(("num_accepted", "rests"), [(2, True), (3, False)])
def test_the_share_of_the_text_decides(num_accepted, rests):
    resting = Resting(num_texts=4)  # 96 tokens in all
    write(resting, 4 * TRIAL, num_accepted)
    assert (num_accepted < LEAST_SHARE * 4 * TRIAL) is rests
    assert resting.is_resting is rests


def test_many_texts_are_tried_together_for_as_long_as_one_alone():
    resting = Resting(num_texts=10)
    write(resting, 10 * TRIAL - 1)
    assert not resting.is_resting, "the model has just caught up with the last of them"
    write(resting, 1)
    assert resting.is_resting
