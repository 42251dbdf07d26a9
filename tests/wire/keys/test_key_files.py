"""Key files: what `goodspeed keygen` makes, who may read it, and that a secret is never shown."""

import logging
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from goodspeed.app import cli
from goodspeed.errors import ConfigError
from goodspeed.serving import api_keys
from goodspeed.wire import keys
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.zmq.authentication import ClientKeys, ServerKeys, client_options, new_pair, server_options


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def keygen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Runs `goodspeed keygen` with these words in the folder, which is made where there is none."""

    def run(words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["goodspeed", "keygen", *shlex.split(words), "--folder", str(folder)])
        return cli.main()

    return run


@pytest.fixture
def made(keygen, folder: Path) -> Path:
    """The folder with the keys of a verify node and of the draft node edge-1."""
    assert keygen("verify") == keygen("draft edge-1") == 0
    return folder


def test_the_pairs_fit_and_say_what_was_asked_for(made: Path) -> None:
    pair, verify = keys.read_draft_pair(str(made / "edge-1.key")), keys.read_verify_key(str(made / "verify.pub"))
    assert keys.read_enrolled(made / "edge-1.pub") == Enrolled("edge-1", pair.public_key)
    assert verify.public_key == keys.read_verify_pair(str(made / "verify.key")).public_key
    assert pair.name == "edge-1"


@pytest.mark.parametrize("full", [".key", ".pub"])
def test_a_full_disk_is_told_and_leaves_no_half_of_a_pair(full, keygen, folder, monkeypatch, capsys) -> None:
    real_open = os.open

    def open_on_full_disk(path: str, flags: int, mode: int = 0o777, **options: int) -> int:
        descriptor = real_open(path, flags, mode, **options)
        if Path(path).suffix == full:
            os.dup2(full_device, descriptor)
        return descriptor

    full_device = real_open("/dev/full", os.O_WRONLY)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", open_on_full_disk)
        assert keygen("draft a") == 2
    os.close(full_device)
    assert f"cannot write {folder / 'a'}{full}: No space left on device" in capsys.readouterr().err
    assert not list(folder.iterdir())
    assert keygen("draft a") == 0


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0, 0o077])
def test_secrets_are_their_owners_alone_from_the_start_and_public_files_everybodys(mask, keygen, folder, monkeypatch):
    opened: dict[str, int] = {}
    real_open = os.open

    def watched(path: str, flags: int, mode: int = 0o777, **options: int) -> int:
        descriptor = real_open(path, flags, mode, **options)
        if folder in Path(path).parents:
            opened[Path(path).name] = stat.S_IMODE(os.fstat(descriptor).st_mode)
        return descriptor

    monkeypatch.setattr(os, "open", watched)
    with umask(mask):
        assert keygen("verify") == keygen("draft a") == 0
    modes = {name: mode_of(folder / name) for name in opened}
    assert modes == {"verify.key": 0o600, "verify.pub": 0o644, "a.key": 0o600, "a.pub": 0o644}
    assert all(mode & ~modes[name] == 0 for name, mode in opened.items()), "nor was more allowed at first"
    assert mode_of(folder) == 0o700


def test_a_users_key_is_one_line_of_its_owners_alone(keygen, folder, capsys, caplog) -> None:
    with umask(0):
        assert keygen("user ana") == keygen("user ben") == 0
    ana, ben = (folder / f"{name}.api-key" for name in ("ana", "ben"))
    assert mode_of(ana) == 0o600
    assert api_keys.read(str(ana)) == ana.read_text().splitlines() != api_keys.read(str(ben))
    assert api_keys.Keys.of_file(str(ana)).know(ana.read_bytes().strip())
    said = capsys.readouterr()
    assert ana.read_text().strip() not in said.out + said.err + caplog.text
    assert caplog.text == ""
    assert keygen("user ana") == keygen("user ../ana") == 2
    assert "already exists" in capsys.readouterr().err


def test_it_is_told_when_others_can_read_api_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (file := tmp_path / "keys").write_text("first-key\n")
    file.chmod(0o644)
    api_keys.Keys.of_file(str(file))
    [record] = caplog.records
    assert record.getMessage() == "other users can read the API keys; run chmod 600 on their file"
    assert vars(record)["path"] == str(file)


@pytest.mark.parametrize(
    ("mode", "is_own", "warned"),
    [
        (0o400, True, False), (0o440, True, True), (0o604, True, True),
        (0o440, False, False), (0o640, False, False), (0o444, False, True),
    ],
)  # fmt: skip
def test_it_is_told_when_others_can_read_a_secret(mode, is_own, warned, made, monkeypatch, caplog) -> None:
    """A node may read a file of root, such as systemd's credentials or Kubernetes' secrets, through its group."""
    (made / "verify.key").chmod(mode)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner if is_own else owner + 1)
    keys.read_verify_pair(str(made / "verify.key"))
    assert ("other users can read" in caplog.text) is warned


def test_nothing_is_overwritten(keygen, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    (made / "edge-1.key").unlink()
    for words in ("verify", "draft edge-1", "draft verify"):
        assert keygen(words) == 2
        assert "already exists" in capsys.readouterr().err
    del before["edge-1.key"]  # and none is made beside the public file that is there
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.key").write_text("here before")
    with pytest.raises(ConfigError, match=r"a\.key already exists"):
        keys.write_secret(tmp_path / "a.key", new_pair("a"))
    assert (tmp_path / "a.key").read_text() == "here before"


def test_a_secret_is_never_shown(keygen, made, capsys, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    keygen("draft b")
    (made / "b.key").chmod(0o644)
    pairs = [keys.read_draft_pair(str(made / "b.key")), keys.read_verify_pair(str(made / "verify.key"))]
    shown = [*capsys.readouterr(), caplog.text, *(f"{pair!r} {pair}" for pair in pairs)]
    shown.append(f"{ServerKeys(pairs[1], bool)} {ClientKeys(pairs[0], pairs[1].public_key)}")
    for reader in (keys.read_verify_key, keys.read_enrolled, keys.read_verify_pair):
        with pytest.raises(ConfigError) as error:
            reader(str(made / "b.key"))
        shown.append(str(error.value))
    assert "other users can read" in caplog.text
    assert not any(pair.secret_key in text for pair in pairs for text in shown)
    written = [(made / name).read_text() for name in ("b.key", "verify.key")]
    assert [pair.secret_key in text for pair, text in zip(pairs, written, strict=True)] == [True, True]


NO_NAMES = {"no spaces": "'no spaces' must be", "../up": "'../up' must be", ".hidden": "not a dot first"}


@pytest.mark.parametrize(("name", "said"), NO_NAMES.items(), ids=NO_NAMES)
def test_what_cannot_be_enrolled_is_not_made(name, said, keygen, tmp_path, capsys) -> None:
    assert keygen(f"draft '{name}'") == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_key_in_the_wrong_place_is_named(made: Path) -> None:
    with pytest.raises(ConfigError, match=r"key of the draft node edge-1.*keygen verify"):
        keys.read_verify_pair(str(made / "edge-1.key"))
    with pytest.raises(ConfigError, match=r"key of a verify node.*keygen draft"):
        keys.read_draft_pair(str(made / "verify.key"))
    with pytest.raises(ConfigError, match=r"--verify-key .*edge-1\.pub"):
        keys.read_verify_key(str(made / "edge-1.pub"))
    with pytest.raises(ConfigError, match="No such file"):
        keys.read_draft_pair(str(made / "none.key"))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\xfe", b"name = ", b"[[[[", b"x = " + b"[" * 5000, b'name = "a"\npublic_key = "short"',
        b'name = "a"\npublic_key = "' + b"#" * 40 + b'"', b"# " + b"x" * 5_000, b"name = 1",
    ],
)  # fmt: skip
def test_broken_files_are_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.pub"
    path.write_bytes(content)
    for read in (keys.read_enrolled, keys.read_verify_key, keys.read_draft_pair):
        with pytest.raises(ConfigError, match=r"broken\.pub"):
            read(str(path))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pub")
    with pytest.raises(ConfigError, match=r"pipe\.pub"):
        keys.read_enrolled(tmp_path / "pipe.pub")


def test_halves_of_two_pairs_are_refused() -> None:
    mixed = keys.KeyPair(new_pair().public_key, new_pair().secret_key)
    with pytest.raises(ConfigError, match="does not match"):
        server_options(mixed)
    with pytest.raises(ConfigError, match="does not match"):
        client_options(ClientKeys(mixed, new_pair().public_key))


def test_where_a_file_is_not_toml_is_told_without_its_contents(tmp_path: Path) -> None:
    path = tmp_path / "edge.pub"
    path.write_text('name = "edge"\nweight = heavy-secret\n')
    with pytest.raises(ConfigError, match=r"edge\.pub: it is not TOML \(at line 2, column 10\); give") as error:
        keys.read_enrolled(path)
    assert "heavy" not in str(error.value)
