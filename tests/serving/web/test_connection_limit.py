"""The limit on connections, and which one is closed for a newcomer: cases by hand, then laws over random ones."""

import random

import pytest

from goodspeed.serving.web.connection_limit import ConnectionLimit, host_of


class Place:
    """A connection that has been idle since a time, or is busy."""

    def __init__(self, since: float | None) -> None:
        self.since = since

    def idle_since(self, now: float) -> float | None:
        return self.since


NEW = Place(9)


def full(hosts: str) -> tuple[ConnectionLimit[Place], dict[str, Place]]:
    """Connections `a0`, `a1`, `b2`... of these hosts, which came at 0, 1, 2 s and fill all limit."""
    limit: ConnectionLimit[Place] = ConnectionLimit(len(hosts))
    places = {f"{host}{moment}": Place(moment) for moment, host in enumerate(hosts)}
    for name, place in places.items():
        assert limit.admit(place, name[0], 0) is None
    return limit, {**places, "new": NEW}


@pytest.mark.parametrize(
    ("hosts", "busy", "newcomer", "victim"),
    [
        ("baac", "", "d", "a1"),  # of the host with most connections
        ("baac", "", "a", "a1"),
        ("baba", "", "c", "b0"),  # of hosts with equally many the longest idle one
        ("baaabb", "", "c", "b0"),
        ("cbba", "", "a", "b1"),
        ("cabb", "", "a", "a1"),
        ("aab", "a0 a1", "b", "b2"),  # never a busy one
        ("aab", "a0 a1 b2", "c", "new"),
        ("baa", "a1", "a", "a2"),  # none of a host with fewer, where the newcomer's has an idle one
        ("aabcc", "a0 a1", "a", "c3"),  # but where it has busy ones only: several users behind one address
    ],
)
def test_who_makes_room(hosts: str, busy: str, newcomer: str, victim: str) -> None:
    limit, places = full(hosts)
    for name in busy.split():
        places[name].since = None
    assert limit.admit(NEW, newcomer, 9) is places[victim]
    assert limit.num_open == len(hosts)


@pytest.mark.parametrize("seed", range(20))
def test_laws(seed: int) -> None:
    """Never more than the limit, never a busy one sent away, never the longest idle of a host kept.

    A newcomer is refused only where all others are busy, or its host has as many as one may have.
    """
    draw = random.Random(seed)
    limit: ConnectionLimit[Place] = ConnectionLimit(draw.randint(2, 20))
    hosts = draw.choice(["aaaab", "abcdefghijklmnopqrstuvwxyz"])
    there: dict[Place, str] = {}
    for number in range(400):
        host, newcomer = draw.choice(hosts), Place(number)
        victim = limit.admit(newcomer, host, number)
        there[newcomer] = host
        if victim is not None:
            victims_host = there.pop(victim)
            assert victim.since is not None
            idle = [place.since for place, h in there.items() if h == victims_host and place.since is not None]
            assert victim.since <= min(idle, default=victim.since) or victim is newcomer
            is_full = list(there.values()).count(host) >= limit.max_per_host
            others = [place for place, h in there.items() if place.since is not None and (h == host or not is_full)]
            assert victim is not newcomer or not others
        for place in draw.sample(list(there), k=len(there) // 2):
            place.since = None if draw.random() < 0.5 else number if place.since is None else place.since
        assert limit.num_open == len(there) <= limit.max_open
        assert list(there.values()).count("a") <= limit.max_per_host


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_whose_connections_are_counted_together(address: str, host: str) -> None:
    assert host_of(address) == host
