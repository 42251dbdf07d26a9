"""Salts: each user has one, nobody else can make it, and texts that share with no other have none."""

from draft_node.service.request import Wanted
from draft_node.service.service import Salts
from goodspeed.wire.messages import Sampling
from tests.draft_node.http.fake import lone_service


def test_a_users_salt_is_always_the_same_and_another_users_is_not() -> None:
    salts = Salts()
    assert salts.of("alice") == salts.of("alice") != Salts().of("alice"), "another process has others"
    assert len({salts.of("alice"), salts.of("bob"), salts.of("")}) == 3
    assert 0 < len(salts.of("alice")) <= 32


def test_a_text_that_shares_with_no_other_has_none() -> None:
    """So its nodes know that nobody can find what was read of it once it is over."""
    service = lone_service()
    one, other, lone = (
        service.request_of(Wanted(prompt=(1, 2), sampling=Sampling(), max_tokens=3, prefix_cache=shares), 0.0)
        for shares in (True, True, False)
    )
    assert one.cache_salt == other.cache_salt != b""
    assert lone.cache_salt == b""
