"""What the service makes of a request for one text: the node's and the target's part of it."""

import pytest

from goodspeed.errors import RequestRefused
from goodspeed.serving.defaults import SamplingRequest
from tests.draft_node.http.fake import FakeService


def test_a_users_salt_is_always_the_same_and_another_users_is_not() -> None:
    here, other = FakeService(), FakeService()

    def salt(service: FakeService, user: str) -> bytes:
        return service.generation((1,), SamplingRequest(seed=1), 1, user=user).cache_salt

    assert salt(here, "alice") == salt(here, "alice") != salt(other, "alice"), "another process has others"
    assert len({salt(here, user) for user in ("alice", "bob", "")}) == 3
    assert 0 < len(salt(here, "alice")) <= 32


def test_the_targets_eos_tokens_end_a_text_unless_it_ignores_them() -> None:
    service = FakeService()
    eos = service.eos_ids
    for own, ignore_eos, ends in (((9,), False, (*eos, 9)), (eos, False, eos), ((9, 9), True, (9,))):
        asked = SamplingRequest(seed=1, stop_ids=own, ignore_eos=ignore_eos)
        assert service.generation((1, 2), asked, 3).stop_ids == ends
    with pytest.raises(RequestRefused, match=f"send at most {64 - len(eos)}, or ignore_eos"):
        service.generation((1, 2), SamplingRequest(seed=1, stop_ids=tuple(range(100, 164))), 3)
