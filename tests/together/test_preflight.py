"""What is wrong about a daemon's settings is found before torch is imported, and so before any model is loaded."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from goodspeed.errors import TransportError
from goodspeed.serving import web
from goodspeed.wire.endpoints import check_free, parse_endpoint
from verify_node.config import VerifyConfig
from verify_node.preflight import check

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
from {module}.cli import main
try:
    status = main()
except SystemExit as end:
    status = end.code
heavy = [name for name in ("torch", "transformers") if name in sys.modules]
print("loaded:", *heavy, file=sys.stderr)
sys.exit(status)
"""

SCARCE = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
held = [open("/dev/null") for _ in range(84)]
"""
"""A limit with which a node starts, of which most is used up already."""

VERIFY = ("verify_node", "--model", "tiny-target", "--bind", "tcp://127.0.0.1:0")
DRAFT = ("draft_node", "--model", "tiny-draft-s", "--verify", "tcp://127.0.0.1:5999")


@pytest.fixture
def busy() -> Iterator[str]:
    """HOST:PORT where somebody listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield f"127.0.0.1:{other.getsockname()[1]}"


def run(module: str, *words: str, first: str = "") -> tuple[int, list[str]]:
    """Exit status and lines of standard error, the last of which says what was imported; first: what runs before."""
    command = [sys.executable, "-c", first + PROGRAM.format(module=module), *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            (*VERIFY, "--bind", "tcp://BUSY"),
            1,
            "cannot bind tcp://BUSY: Address already in use; another program listens",
        ),
        ((*VERIFY, "--bind", "tcp://192.0.2.1:5555", "--trusted-network"), 1, "choose an address of this machine"),
        ((*VERIFY, "--http", "BUSY"), 1, "cannot bind --http BUSY: Address already in use; another program listens"),
        ((*VERIFY, "--policy", "greedy"), 2, "no policy is called 'greedy'"),
        ((*VERIFY, "--policy", "no_such_module:Mine"), 2, "no_such_module cannot be imported: ModuleNotFoundError"),
        ((*VERIFY, "--profile", "/no/such/file"), 2, "profile /no/such/file cannot be read"),
        ((*VERIFY, "--key", "/no/such/key", "--enrolled", "/no"), 2, "/no/such/key: cannot read it"),
        (
            (*VERIFY, "--http", "127.0.0.1:0", "--api-key", "/no/such/keys"),
            2,
            "--api-key /no/such/keys: cannot read it (No such file or directory); write a file with one key a line",
        ),
        ((*VERIFY, "--model", "tiny-goose"), 1, "model 'tiny-goose' was not found"),
        ((*VERIFY, "--model", str(ROOT / "docs")), 1, "is not a checkpoint folder"),
        ((*VERIFY, "--budget", "0"), 2, "--budget 0 is too small"),
        ((*DRAFT, "--http", "BUSY"), 1, "cannot bind --http BUSY: Address already in use; another program listens"),
        (
            (*DRAFT, "--prompts", "/no/such/file"),
            1,
            "--prompts /no/such/file: cannot read it (No such file or directory); "
            "give a file with one JSON object a line, or - for standard input",
        ),
        ((*VERIFY, "--kv-pages", "9", "--memory-fraction", "0.1"), 2, "give one of them"),
        ((*DRAFT, "--verify", "tcp://127.0.0.1:0"), 2, "a port to connect to is 1 to 65535"),
        ((*DRAFT, "--key", "/no/such/key", "--verify-key", "/no"), 2, "/no/such/key: cannot read it"),
        ((*DRAFT, "--name", "no spaces"), 2, "--name 'no spaces' must be"),
        ((*DRAFT, "--model", "tiny-goose"), 1, "model 'tiny-goose' was not found"),
    ],
)
def test_it_is_said_before_torch_is_loaded(words: tuple[str, ...], status: int, said: str, busy: str) -> None:
    ended, lines = run(*(word.replace("BUSY", busy) for word in words))
    assert ended == status
    assert said.replace("BUSY", busy) in lines[-2]
    assert lines[-1] == "loaded:"
    assert not [line for line in lines if "loading" in line]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", [(*VERIFY, "--bind", "tcp://BUSY"), (*VERIFY, "--http", "BUSY"), (*DRAFT, "--http", "BUSY")]
)
def test_a_port_in_use_is_said_before_a_model_that_is_none(words: tuple[str, ...], busy: str) -> None:
    _, lines = run(*(word.replace("BUSY", busy) for word in words), "--model", "tiny-goose")
    assert "Address already in use" in lines[-2]


@pytest.mark.parametrize("words", [VERIFY, DRAFT])
def test_too_few_descriptors_for_http_are_said_before_a_model_that_is_none(words: tuple[str, ...]) -> None:
    _, lines = run(*words, "--http", "127.0.0.1:0", "--model", "tiny-goose", first=SCARCE)
    assert "too few to serve HTTP" in lines[-2]


def test_a_bad_pair_of_keys_is_found(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        made = [sys.executable, "-m", "goodspeed", "keygen", "verify", "--folder", str(tmp_path / folder)]
        subprocess.run(made, cwd=ROOT, capture_output=True, check=True)
    key = tmp_path / "one" / "verify.key"
    one, two = (path.read_text() for path in (key, tmp_path / "two" / "verify.key"))
    public = next(line for line in two.splitlines() if line.startswith("public_key"))
    key.write_text("\n".join(public if line.startswith("public_key") else line for line in one.splitlines()))
    (tmp_path / "enrolled").mkdir()
    status, lines = run(*VERIFY, "--key", str(key), "--enrolled", str(tmp_path / "enrolled"))
    assert (status, lines[-1]) == (2, "loaded:")
    assert "do not belong together" in lines[-2]


def test_the_pages_port_is_held_while_the_model_loads_and_refuses_until_it_is_served() -> None:
    """Somebody who connects too early is refused at once, and does not wait in a queue that nobody serves."""
    found = check(VerifyConfig(model="tiny-target", bind="tcp://127.0.0.1:0", http="127.0.0.1:0"))
    assert found.http is not None
    with found.http.listener as listener:
        address = web.parse_address(web.url(listener).removeprefix("http://"))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.ip, address.port), timeout=10)
        with pytest.raises(TransportError, match="another program listens there; stop it"):
            web.bind(address, None)
        web.start_listening(listener)
        socket.create_connection((address.ip, address.port), timeout=10).close()


def test_a_port_may_be_used_again_at_once_after_its_connections_ended() -> None:
    """What ended lingers in the system for a minute; a node that is started again must not be kept out by that."""
    with web.bind(web.parse_address("127.0.0.1:0"), None) as listener:
        web.start_listening(listener)
        listener.setblocking(True)
        address = web.parse_address(web.url(listener).removeprefix("http://"))
        with socket.create_connection((address.ip, address.port)) as user:
            accepted, _ = listener.accept()
            accepted.close()  # this side ends it, so this side's port lingers
            assert user.recv(1) == b""
    check_free(parse_endpoint(f"tcp://{address.ip}:{address.port}", False, "binding"))
    web.bind(address, None).close()


def test_any_free_port_is_free() -> None:
    for endpoint in ("tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "tcp://localhost:0"):
        check_free(parse_endpoint(endpoint, False, "binding"))
    check_free(parse_endpoint("tcp://*:0", True, "binding"))


@pytest.mark.nodes
def test_the_waiting_is_told_from_the_beginning() -> None:
    """A person sees at once that the node is loading, and then what it waits for; --quiet says nothing."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        words = ("--model", "tiny-draft-s", "--verify", endpoint, "--connect-timeout-s", "4", "--json")
        with ThreadPoolExecutor() as both:
            told, quiet = both.map(
                lambda more: subprocess.run(
                    [sys.executable, "-m", "draft_node", *words, *more],
                    cwd=ROOT,
                    input="The river\n",
                    capture_output=True,
                    text=True,
                    timeout=120,
                ),
                ([], ["--quiet"]),
            )
    lines = told.stderr.splitlines()
    assert lines[0] == "goodspeed-draft: loading tiny-draft-s ..."
    assert lines[1].startswith(f"goodspeed-draft: waiting for the verify node at {endpoint} (since 2 s); start ")
    assert lines[2].startswith(f"goodspeed-draft: the verify node at {endpoint} has been away for 4 s; start ")
    assert len(lines) == 3
    assert quiet.stderr.splitlines() == lines[2:]
    for ended in (told, quiet):
        assert ended.returncode == 1
        assert all(isinstance(json.loads(line), dict) for line in ended.stdout.splitlines())
