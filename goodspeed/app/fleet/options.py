"""The settings of `goodspeed-fleet up`, and the plan that actors get as JSON."""

from dataclasses import dataclass

from msgspec import Struct

from goodspeed.errors import ConfigError
from goodspeed.fleet.replicas import MAX_REPLICAS
from goodspeed.serving import options
from goodspeed.serving.config import Settings, option

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}"
WHAT_NAME = "the fleet's name: up to 32 letters, digits, dots, dashes or underscores"
MORE, FIXED = (
    "start more while all are full, up to N, and end them when they are not",
    "as --replicas: no more, no fewer",
)
GPUS, OF_TP = (
    "GPUs that Ray reserves for each, on one machine; say --device cuda, too",
    "K of --tp if that is more than 1",
)
RAY, OWN = (
    "the Ray to run on; auto finds one on this machine. Its network has to be trusted",
    "one of its own, on loopback",
)
HOST = "where the replicas listen; 0.0.0.0 is every address of their machines"
PORT = "of the first replica, each next one has the next; 0: any that are free"
ENROLLED = "folder with the public files of the draft nodes that may connect"


@dataclass(frozen=True, kw_only=True)
class UpConfig(Settings):
    """See `goodspeed-fleet up --help`."""

    model: str = options.model("target model: ")
    replicas: int = option(2, minimum=1, maximum=MAX_REPLICAS, group="fleet", help="verify nodes to start")
    max_replicas: int | None = option(None, minimum=1, maximum=MAX_REPLICAS, shown=FIXED, group="fleet", help=MORE)
    name: str = option("default", pattern=NAME, group="fleet", help=WHAT_NAME)
    tp: int = option(
        1, minimum=1, maximum=64, group="fleet", help="processes that each replica is split over", metavar="K"
    )
    gpus: int | None = option(None, minimum=0, maximum=64, shown=OF_TP, group="fleet", help=GPUS)
    cpus: int = option(1, minimum=1, maximum=1024, group="fleet", help="processors that Ray reserves for each")
    address: str | None = option(None, shown=OWN, group="fleet", help=RAY, metavar="HOST:PORT|auto")
    host: str = option("127.0.0.1", group="connection", help=HOST)
    port: int = option(5555, minimum=0, maximum=65535 - MAX_REPLICAS, group="connection", help=PORT)
    trusted_network: bool = options.trusted_network()
    key: str | None = option(None, shown="none: loopback only", group="keys", help="secret key of all", metavar="FILE")
    enrolled: str | None = option(None, shown="nobody is asked", group="keys", help=ENROLLED, metavar="FOLDER")

    def __post_init__(self) -> None:
        super().__post_init__()
        options.check_keys(self.key, self.enrolled, "--enrolled FOLDER", trusted_network=self.trusted_network)
        if (self.max_replicas or self.replicas) < self.replicas:
            raise ConfigError(f"give a --max-replicas not below --replicas {self.replicas}")

    @property
    def resources(self) -> dict[str, int]:
        """What Ray reserves for each replica."""
        gpus = self.gpus if self.gpus is not None else self.tp if self.tp > 1 else 0
        return {"CPU": self.cpus} | ({"GPU": gpus} if gpus else {})


class Plan(Struct, frozen=True):
    """A fleet as its user asked for it. Keys stay in their files, which are named here."""

    config: UpConfig
    further: tuple[str, ...]  # options of goodspeed-verify
    folder: str  # in which `up` was said: names of files are relative to it

    def words(self, port: int) -> list[str]:
        """Returns the options of goodspeed-verify for a replica at this port."""
        config = self.config
        words = [f"--model={config.model}", f"--bind=tcp://{config.host}:{port}", f"--tp={config.tp}"]
        words += [f"--key={config.key}", f"--enrolled={config.enrolled}"] if config.key is not None else []
        return [*words, *(["--trusted-network"] if config.trusted_network else []), *self.further]
