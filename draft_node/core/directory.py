"""The verify nodes that this draft node may connect to: those of its options, and those that one of them told it."""

from collections.abc import Iterable, Sequence
from math import inf
from random import Random
from typing import NamedTuple

from goodspeed.wire.handshake import Sibling


class Address(NamedTuple):
    """A verify node's endpoint, and the key that it proves to have."""

    endpoint: str
    server_key: str | None = None  # None: that of the options, if there is one


class Directory:
    """Addresses by endpoint. Those of the options are always there; the others are what was told last."""

    def __init__(self, of_options: Sequence[Address], random: Random) -> None:
        self._of_options = {address.endpoint: address for address in of_options}
        self._siblings: dict[str, Sibling] = {}
        self._targets: dict[str, str] = {}  # fingerprints of the targets found there
        self._excluded: set[str] = set()
        self._random = random

    def learn(self, siblings: Iterable[Sibling]) -> None:
        """A verify node told who is in its fleet; it knows better than whoever told before."""
        self._siblings = {sibling.endpoint: sibling for sibling in siblings}

    def exclude(self, address: Address) -> None:
        """Excludes a verify node that serves nothing for this draft node."""
        self._excluded.add(address.endpoint)

    def found(self, address: Address, target: str) -> None:
        """Its Welcome named this target."""
        self._targets[address.endpoint] = target

    def find(self, endpoint: str, server_key: str) -> Address | None:
        """The address of this endpoint, if it is known by this key; None: nobody who may say so has named it."""
        if endpoint not in self._siblings and endpoint not in self._of_options:
            return None
        address = self._address(endpoint)
        return address if (address.server_key or "") == server_key else None

    def addresses(self) -> list[Address]:
        """All of them, those of the options first."""
        return [self._address(endpoint) for endpoint in {**self._of_options, **self._siblings}]

    def may_have(self, address: Address, target: str | None) -> bool:
        """Returns whether a text of this target may go on there, as far as is known."""
        return target is None or self._target(address.endpoint) in (None, target)

    def _takes_sessions(self, address: Address) -> bool:
        sibling = self._siblings.get(address.endpoint)
        is_draining = sibling is not None and sibling.is_draining
        return not is_draining and address.endpoint not in self._excluded

    def candidates(self, target: str | None) -> list[Address]:
        """Returns addresses to try next: those that may have this target, the shortest wait first, unknown ones last.

        Equals come in random order, so that the draft nodes of a verify node that died do not all go to one.
        """
        found = [one for one in self.addresses() if self.may_have(one, target) and self._takes_sessions(one)]
        return sorted(
            found, key=lambda one: (self._expected_s(one) * self._random.uniform(0.5, 1.5), self._random.random())
        )

    def _expected_s(self, address: Address) -> float:
        sibling = self._siblings.get(address.endpoint)
        if sibling is None or sibling.expected_s is None:
            return inf
        return sibling.expected_s

    def _target(self, endpoint: str) -> str | None:
        sibling = self._siblings.get(endpoint)
        told = sibling.target_fingerprint if sibling is not None else ""
        return told or self._targets.get(endpoint)

    def _address(self, endpoint: str) -> Address:
        if endpoint in self._of_options:
            return self._of_options[endpoint]
        return Address(endpoint, self._siblings[endpoint].server_key or None)
