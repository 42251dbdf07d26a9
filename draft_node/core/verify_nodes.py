"""The verify nodes that this draft node may connect to: those in its options, and the siblings these report."""

from collections.abc import Iterable, Sequence
from math import inf
from random import Random
from typing import NamedTuple

from goodspeed.wire.handshake import Sibling


class Address(NamedTuple):
    """A verify node's endpoint, and the public key that the node must prove."""

    endpoint: str
    server_key: str | None = None  # None: the key in the options, if any


class VerifyNodes:
    """Addresses of verify nodes: those in the options permanently, and the siblings reported most recently."""

    def __init__(self, of_options: Sequence[Address], random: Random) -> None:
        self._of_options = {address.endpoint: address for address in of_options}
        self._siblings: dict[str, Sibling] = {}
        self._targets: dict[str, str] = {}  # fingerprints of the targets found there
        self._excluded: set[str] = set()
        self._random = random

    def learn(self, siblings: Iterable[Sibling]) -> None:
        """Replaces the siblings by a verify node's newest list of its fleet."""
        self._siblings = {sibling.endpoint: sibling for sibling in siblings}

    def exclude(self, address: Address) -> bool:
        """Excludes a verify node that refuses this draft node for good. Returns whether another address is left."""
        self._excluded.add(address.endpoint)
        return any(one.endpoint not in self._excluded for one in self.addresses())

    def found(self, address: Address, target: str) -> None:
        """Records the target in a verify node's Welcome."""
        self._targets[address.endpoint] = target

    def find(self, endpoint: str, server_key: str) -> Address | None:
        """Returns the address of an endpoint that is known with this key; None: none is, or it is excluded."""
        if endpoint in self._excluded or (endpoint not in self._siblings and endpoint not in self._of_options):
            return None
        address = self._address(endpoint)
        return address if (address.server_key or "") == server_key else None

    def addresses(self) -> list[Address]:
        """Returns all addresses, those in the options first."""
        return [self._address(endpoint) for endpoint in {**self._of_options, **self._siblings}]

    def may_have(self, address: Address, target: str | None) -> bool:
        """Returns whether the verify node may have this target; True also if the node's is unknown. None: any."""
        known = self._sibling(address).target_fingerprint or self._targets.get(address.endpoint)
        return target is None or known in (None, target)

    def _takes_sessions(self, address: Address) -> bool:
        return not self._sibling(address).is_draining and address.endpoint not in self._excluded

    def candidates(self, target: str | None) -> list[Address]:
        """Returns the addresses that may have this target, shortest expected wait first, unknown waits at the end.

        Waits are randomized (0.5 to 1.5 times), so that the draft nodes of a dead verify node do not all go to one.
        """
        found = [one for one in self.addresses() if self.may_have(one, target) and self._takes_sessions(one)]
        return sorted(
            found, key=lambda one: (self._expected_s(one) * self._random.uniform(0.5, 1.5), self._random.random())
        )

    def _expected_s(self, address: Address) -> float:
        seconds = self._sibling(address).expected_s
        return inf if seconds is None else seconds

    def _sibling(self, address: Address) -> Sibling:
        """Returns what was reported of an address; nothing is known of one that was not."""
        return self._siblings.get(address.endpoint, Sibling(address.endpoint))

    def _address(self, endpoint: str) -> Address:
        if endpoint in self._of_options:
            return self._of_options[endpoint]
        return Address(endpoint, self._siblings[endpoint].server_key or None)
