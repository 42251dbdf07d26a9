"""The settings of `goodspeed-fleet up`. Knows nothing about how they are obeyed."""

from dataclasses import dataclass

from goodspeed.command import model_options
from goodspeed.command.config import Settings, option
from goodspeed.errors import ConfigError
from goodspeed.fleet.replicas import MAX_REPLICAS
from goodspeed.node import options

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}"
WHAT_NAME = "the fleet's name: up to 32 letters, digits, dots, dashes or underscores"
DEFAULT_NAME = "default"


@dataclass(frozen=True, kw_only=True)
class UpConfig(Settings):
    """See `goodspeed-fleet up --help`."""

    model: str = model_options.model("target model: ")
    replicas: int = option(2, minimum=1, maximum=MAX_REPLICAS, group="fleet", help="verify nodes to start", metavar="N")
    max_replicas: int | None = option(
        None,
        minimum=1,
        maximum=MAX_REPLICAS,
        shown="as --replicas: no more, no fewer",
        group="fleet",
        help="start more while all are full, up to N, and end them when they are not",
        metavar="N",
    )
    full_round_ms: float | None = option(
        None,
        minimum=1.0,
        shown="time does not count",
        group="fleet",
        help="with --max-replicas: a replica whose rounds take so long is full",
    )
    name: str = option(DEFAULT_NAME, pattern=NAME, group="fleet", help=WHAT_NAME)
    tp: int = option(
        1, minimum=1, maximum=64, group="fleet", help="split the model of each replica over K processes", metavar="K"
    )
    gpus: int | None = option(
        None,
        minimum=0,
        maximum=64,
        shown="K of --tp if that is more than 1, else 0",
        group="fleet",
        help="GPUs that Ray reserves for each replica, on one machine; say --device cuda, too",
        metavar="N",
    )
    cpus: int = option(
        1, minimum=1, maximum=1024, group="fleet", help="processors that Ray reserves for each", metavar="N"
    )
    address: str | None = option(
        None,
        shown="a Ray of its own, on loopback",
        group="fleet",
        help="the Ray that the replicas run on; auto finds one on this machine. Its network has to be trusted",
        metavar="HOST:PORT|auto",
    )
    host: str = option(
        "127.0.0.1", group="connection", help="where the replicas listen; 0.0.0.0 is every address of their machines"
    )
    port: int = option(
        5555,
        minimum=0,
        maximum=65535 - MAX_REPLICAS,
        group="connection",
        help="of the first replica, each next one has the next; 0: any that are free",
        metavar="N",
    )
    trusted_network: bool = options.trusted_network()
    key: str | None = option(
        None,
        shown="no encryption: loopback only",
        group="keys",
        help="secret key of all replicas, of `goodspeed keygen verify`",
        metavar="FILE",
    )
    enrolled: str | None = option(
        None,
        shown="nobody is asked for a key",
        group="keys",
        help="folder with the public files of the draft nodes that may connect",
        metavar="FOLDER",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        options.check_keys(self.key, self.enrolled, "--enrolled FOLDER", trusted_network=self.trusted_network)
        if self.full_round_ms is not None and self.max_replicas is None:
            raise ConfigError(
                "--full-round-ms says when more replicas are started; give --max-replicas N, too, or neither"
            )
