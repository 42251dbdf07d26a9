"""The limit on connections, and which one is closed for a newcomer: cases by hand, then laws over random ones."""

import random

import pytest

from goodspeed.serving.web.connection_limit import ConnectionLimit, host_of


def full(*hosts: str, max_open: int | None = None) -> ConnectionLimit[str]:
    """Connections `a0`, `a1`, `b2`... of these hosts, which came at 0, 1, 2 s and fill all limit."""
    limit: ConnectionLimit[str] = ConnectionLimit(max_open or len(hosts))
    for moment, host in enumerate(hosts):
        assert limit.admit(f"{host}{moment}", host, moment) is None
    return limit


def test_there_is_room_for_so_many() -> None:
    limit = full("a", "b", "c")
    assert limit.num_open == 3
    limit.remove("a0")
    assert limit.admit("new", "d", 9) is None


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
    limit = full(*hosts)
    for who in busy.split():
        limit.mark_busy(who)
    assert limit.admit("new", newcomer, 9) == victim
    assert limit.num_open == len(hosts)


def test_idle_begins_when_a_request_ends_and_not_again() -> None:
    limit = full("a", "a", "b", "a")
    limit.mark_busy("a0")
    limit.mark_idle("a0", 8)
    assert limit.admit("new", "c", 9) == "a1"
    limit = full("a", "a", "b")
    limit.mark_busy("a0")
    limit.mark_idle("a0", 0.5)
    limit.mark_idle("a0", 7)
    assert limit.admit("new", "c", 9) == "a0"


def test_no_host_has_all_connections() -> None:
    limit: ConnectionLimit[int] = ConnectionLimit(16)
    assert [limit.admit(number, "a", number) for number in range(16)] == [None] * 14 + [0, 1]
    assert limit.admit(16, "b", 16) is None


def test_a_new_host_is_admitted_where_every_host_has_one_idle_connection() -> None:
    """Strangers of as many addresses as connections are possible do not shut it out."""
    limit: ConnectionLimit[int] = ConnectionLimit(512)
    for number in range(512):
        assert limit.admit(number, f"host{number}", number) is None
    assert (limit.admit(512, "new", 512), limit.admit(513, "newer", 513)) == (0, 1)
    assert limit.num_open == 512


def test_who_left_is_asked_nothing() -> None:
    limit = full("a", "b")
    limit.remove("a0")
    limit.remove("a0")
    limit.mark_busy("a0")
    limit.mark_idle("a0", 3)
    assert limit.num_open == 1


@pytest.mark.parametrize("seed", range(20))
def test_laws(seed: int) -> None:
    """Never more than the limit, never a busy one sent away, never the longest idle of a host kept.

    A newcomer is refused only where all others are busy, or its host has as many as one may have.
    """
    draw = random.Random(seed)
    limit: ConnectionLimit[int] = ConnectionLimit(draw.randint(2, 20))
    hosts = draw.choice(["aaaab", "abcdefghijklmnopqrstuvwxyz"])
    there: dict[int, tuple[str, float | None]] = {}
    for number in range(400):
        host = draw.choice(hosts)
        victim = limit.admit(number, host, number)
        there[number] = (host, number)
        if victim is not None:
            victims_host, since = there.pop(victim)
            assert since is not None
            idle = [s for h, s in there.values() if h == victims_host and s is not None]
            assert since <= min(idle, default=since) or victim == number
            is_full = sum(h == host for h, _ in there.values()) >= limit.max_per_host
            others = [s for h, s in there.values() if s is not None and (h == host or not is_full)]
            assert victim != number or not others
        for who in draw.sample(sorted(there), k=len(there) // 2):
            if draw.random() < 0.5:
                limit.mark_busy(who)
                there[who] = (there[who][0], None)
            elif there[who][1] is None:
                limit.mark_idle(who, number)
                there[who] = (there[who][0], number)
        assert limit.num_open == len(there) <= limit.max_open
        assert sum(h == "a" for h, _ in there.values()) <= limit.max_per_host


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
