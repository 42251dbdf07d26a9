"""The settings of `goodspeed-fleet up`."""

from dataclasses import MISSING, dataclass

from goodspeed.errors import ConfigError
from goodspeed.fleet.replicas import MAX_REPLICAS
from goodspeed.serving import options
from goodspeed.serving.config import Settings, option

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}"
WHAT_NAME = "the fleet's name: up to 32 letters, digits, dots, dashes or underscores"
GPUS = "GPUs that Ray reserves for each, on one machine; say --device cuda, too"
RAY = "the Ray to run on; auto finds one on this machine. Its network has to be trusted"
HOST = "where the replicas listen; with --address 0.0.0.0 is every address of their machines"
PORT = "of the first replica, each next one has the next; 0: any that are free"
HTTP = "HOST:PORT of the first replica's live page and /metrics; each next replica has the next port"
LAST_PORT = 65535 - MAX_REPLICAS
WILDCARDS = frozenset({"*", "0.0.0.0", "::", "[::]"})
ENROLLED = "folder with the public files of the draft nodes that may connect"


@dataclass(frozen=True, kw_only=True)
class UpConfig(Settings):
    """See `goodspeed-fleet up --help`."""

    model: str = option(MISSING, options.MODEL, f"target model: {options.NAMES}", metavar="NAME")
    replicas: int = option(2, "fleet", "verify nodes to start", minimum=1, maximum=MAX_REPLICAS)
    name: str = option("default", "fleet", WHAT_NAME, pattern=NAME)
    tp: int = option(1, "fleet", "processes that each is split over", minimum=1, maximum=64, metavar="K")
    gpus: int | None = option(None, "fleet", GPUS, shown="K of --tp if that is more than 1", minimum=0, maximum=64)
    address: str | None = option(None, "fleet", RAY, shown="one of its own, on loopback", metavar="HOST:PORT|auto")
    host: str = option("127.0.0.1", "connection", HOST)
    port: int = option(5555, "connection", PORT, minimum=0, maximum=LAST_PORT)
    http: str | None = option(None, "connection", HTTP, shown="no page", pattern=options.ADDRESS, metavar="HOST:PORT")
    trusted_network: bool = option(False, options.NETWORK, options.TRUST)
    key: str | None = option(None, "keys", "secret key of all", shown="none: loopback only", metavar="FILE")
    enrolled: str | None = option(None, "keys", ENROLLED, shown="nobody is asked", metavar="FOLDER")

    def __post_init__(self) -> None:
        super().__post_init__()
        options.check_keys(self.key, self.enrolled, "--enrolled FOLDER", trusted_network=self.trusted_network)
        if self.http is not None and int(self.http.rpartition(":")[2]) > LAST_PORT:
            raise ConfigError(f"--http {self.http}: give a port up to {LAST_PORT}; each next replica has the next port")

    def check_ports(self, num_replicas: int) -> None:
        """Raises ConfigError if one replica's --port would be another's --http, at one address.

        num_replicas: number of replicas, or the highest number in their names if that is more.
        """
        host, _, page = (self.http or "").rpartition(":")
        is_shared = host == self.host or bool(WILDCARDS & {host, self.host})
        if self.port and int(page or 0) and is_shared and abs(self.port - int(page)) < num_replicas:
            raise ConfigError(
                f"--port {self.port} and --http {self.http} overlap, since each of {num_replicas} replicas has the "
                f"next port of both; put them {num_replicas} ports apart or more"
            )

    @property
    def num_gpus(self) -> int:
        """GPUs that Ray reserves for each replica."""
        return self.gpus if self.gpus is not None else self.tp if self.tp > 1 else 0
