"""The service adds the node's and the target's settings to a request for one text."""

from goodspeed.serving.sampling_defaults import SamplingRequest
from tests.draft_node.http.fake import FakeService


def test_a_users_salt_is_always_the_same_and_another_users_is_not() -> None:
    here, other = FakeService(), FakeService()

    def salt(service: FakeService, user: str) -> bytes:
        return service.generation((1,), SamplingRequest(seed=1), 1, user=user).cache_salt

    assert salt(here, "alice") == salt(here, "alice") != salt(other, "alice"), "another process has others"
    assert len({salt(here, user) for user in ("alice", "bob", "")}) == 3
    assert 0 < len(salt(here, "alice")) <= 32
