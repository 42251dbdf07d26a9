"""A million draft nodes in regions: how many replicas they take, and what it costs that these know of each other.

Computed from assumptions, from a measured capacity, and from the sizes of real messages.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import msgspec

from experiments.slo.fleet_worlds import Region
from goodspeed.fleet.replicas import MAX_OWED, MAX_REPLICAS, Load, Owed, Pace, Replica
from goodspeed.wire import codec
from goodspeed.wire.handshake import Heartbeat, Sibling

KEY = "k" * 40
FINGERPRINT = "f" * 64
ENDPOINT = "tcp://verify-{:02}.region.example.com:5555"
MAX_BYTES = 1 << 20


def replica(number: int, num_owed: int = 8) -> Replica:
    """A replica with about as much to do as in the middle of a busy day: four TPOTs, and some prompts owed."""
    paces = tuple(Pace(tpot_s, 50) for tpot_s in (0.03, 0.05, 0.1, 0.2))
    owed = tuple(Owed(0.123456789 * place, 700 + place, 0.1, 60) for place in range(num_owed))
    numbers = Load(
        told_at=1.8e9 + 0.123456,
        boot_id="0" * 32,
        target_fingerprint=FINGERPRINT,
        num_sessions=230,
        max_sessions=1024,
        num_pages=2687,
        free_pages=412,
        context_tokens=180_000,
        round_s=0.0412345,
        fixed_s=0.0248,
        token_s=6.878e-5,
        usual_error=0.0212345,
        promises=True,
        paces=paces,
        owed=owed,
    )
    return Replica(f"verify-{number:02}", ENDPOINT.format(number), KEY, numbers)


def sizes() -> dict[str, int]:
    """Bytes of a report and of a table of MAX_REPLICAS in msgpack, and of what a draft node is told.

    Of the table also the size that it has when every replica owes as many prompts as can be told.
    """
    encode = msgspec.msgpack.Encoder().encode
    usual, most = ([replica(number, owed) for number in range(MAX_REPLICAS)] for owed in (8, MAX_OWED))
    siblings = tuple(Sibling(one.endpoint, KEY, FINGERPRINT, expected_s=0.0412) for one in usual)
    return {
        "report_bytes": len(encode(usual[0])),
        "table_bytes": len(encode(usual)),
        "largest_table_bytes": len(encode(most)),
        "told_bytes": len(codec.encode(Heartbeat(bytes(8), siblings), MAX_BYTES)),
    }


def million(region: Region, capacity: float, hops: float) -> dict[str, Any]:
    """Returns how many replicas and fleets it takes, and bytes per second.

    A flat table of all replicas is compared with fleets of MAX_REPLICAS that know only their own. capacity: requests/s
    of one replica of a fleet of that size. hops: of a request in it, on average.
    """
    measured = sizes()
    asked = region.draft_nodes * region.requests_per_s
    replicas = ceil(asked / (capacity * (1.0 - region.reserve)))
    by_region = ceil(replicas / region.regions)
    fleets = ceil(by_region / MAX_REPLICAS)
    in_fleet = ceil(by_region / fleets)
    entry, sibling = measured["table_bytes"] / MAX_REPLICAS, measured["told_bytes"] / MAX_REPLICAS
    nodes = region.draft_nodes / replicas

    def costs(known: int, of: int) -> dict[str, float]:
        """known: replicas in a table. of: replicas that pull it from one place."""
        return {
            "replica_bytes_per_s": (measured["report_bytes"] + known * entry) / region.reports_s,
            "keeper_bytes_per_s": of * (measured["report_bytes"] + known * entry) / region.reports_s,
            "told_bytes_per_s": nodes * known * sibling / region.told_s,
            "draft_node_bytes_per_s": known * sibling / region.told_s,
        }

    return measured | {
        "draft_nodes": region.draft_nodes,
        "regions": region.regions,
        "requests_per_s": asked,
        "replica_capacity": capacity,
        "replicas": replicas,
        "replicas_per_region": by_region,
        "fleets_per_region": fleets,
        "replicas_per_fleet": in_fleet,
        "draft_nodes_per_replica": nodes,
        "redirects_per_s": asked * hops,
        "redirects_per_s_and_fleet": asked * hops / (fleets * region.regions),
        "fleet": costs(in_fleet, in_fleet),
        "flat": costs(replicas, replicas),
        "fleets_table_bytes_per_s": fleets * entry / region.reports_s,
    }
