"""Folders of checkpoints: complete ones, and downloads and copies that stopped half-way. No weights, no network."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors.numpy import save_file

from goodspeed.embedded import models
from goodspeed.engine.model_files import checkpoint_folder, finding
from goodspeed.errors import CheckpointError

SHARDS = ("model-1-of-3.safetensors", "model-2-of-3.safetensors", "model-3-of-3.safetensors")
WEIGHTS = {f"layer.{i}": SHARDS[i % 3] for i in range(9)}


def fill(folder: Path) -> None:
    (folder / checkpoint_folder.INDEX).write_text(json.dumps({"weight_map": WEIGHTS}))
    (folder / "config.json").write_text('{"model_type": "llama"}')
    for name in (*SHARDS, "tokenizer.json"):
        (folder / name).touch()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A complete checkpoint in three shards."""
    fill(tmp_path)
    return tmp_path


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub that has everything, and the log of what was asked of it."""
    asked: list[str] = []

    def snapshot_download(repository: str, *, local_files_only: bool = False, **options: Any) -> str:
        if not local_files_only:
            asked.append(repository)
            fill(folder)
        return str(folder)

    monkeypatch.setattr(checkpoint_folder, "snapshot_download", snapshot_download)
    return asked


def test_a_complete_download_is_not_asked_for_again(folder: Path, hub: list[str]) -> None:
    assert checkpoint_folder.find_folder("someone/something") == folder
    assert hub == []


@pytest.mark.parametrize(
    "interrupt",
    [
        lambda folder: (folder / SHARDS[1]).unlink(),
        lambda folder: (folder / checkpoint_folder.INDEX).unlink(),  # shards sort before their index
        lambda folder: (folder / checkpoint_folder.INDEX).write_text("{"),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "tokenizer.json").unlink(),
    ],
)
def test_an_interrupted_download_is_completed(folder, hub, interrupt):
    interrupt(folder)
    assert checkpoint_folder.find_folder("someone/something") == folder
    assert hub == ["someone/something"]
    assert all((folder / name).exists() for name in (*SHARDS, "config.json", "tokenizer.json"))


def test_of_a_tokenizer_no_weights_are_downloaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def snapshot_download(name: str, *, local_files_only: bool = False, **options: Any) -> str:
        if not local_files_only:
            asked.append(options["allow_patterns"])
            tiny_draft = models.path("tiny-draft-s")
            for file in ("tokenizer.json", "tokenizer_config.json"):
                (folder / file).write_bytes((tiny_draft / file).read_bytes())
        return str(folder)

    monkeypatch.setattr(checkpoint_folder, "snapshot_download", snapshot_download)
    for name in (*SHARDS, checkpoint_folder.INDEX, "tokenizer.json"):
        (folder / name).unlink()
    finding.find_tokenizer("someone/something")
    assert asked == [["*.json", "*.jinja", "*.txt", "*.model"]]
    found, same = finding.load_tokenizer("someone/something"), finding.load_tokenizer("tiny-draft-s")
    assert (len(asked), found.tokenizer_fingerprint) == (1, same.tokenizer_fingerprint)
    for other in ("tiny-draft-s", str(folder), "../something", "a/b/c", ""):
        assert checkpoint_folder.find_tokenizer_folder(other) is None


def test_a_tokenizer_that_is_nowhere_is_told_with_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_folder, "snapshot_download", Mock(side_effect=OSError("no route")))
    says = r"^--tokenizer models/x: model 'models/x' was not found \(no such folder exists, and the download .*no route"
    with pytest.raises(CheckpointError, match=says):
        finding.find_tokenizer("models/x")


def test_a_download_is_said_before_it_begins(folder: Path, hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / SHARDS[1]).unlink()
    said: list[str] = []
    download: Callable[..., str] = vars(checkpoint_folder)["snapshot_download"]

    def watched(name: str, **options: Any) -> str:
        assert options.get("local_files_only") or said == ["downloading someone/something ..."]
        return download(name, **options)

    monkeypatch.setattr(checkpoint_folder, "snapshot_download", watched)
    for _ in range(2):  # what is there is not said again
        checkpoint_folder.find_folder("someone/something", lambda text, *values: said.append(text % values))
    assert len(said) == 1


def raised(kind: type[HfHubHTTPError], status: int) -> HfHubHTTPError:
    response: Any = SimpleNamespace(status_code=status, headers={}, request=None)
    return kind(f"{status} Client Error.\n\nCannot access the repository.", response=response)


def offline(cause: Exception) -> Exception:
    """Returns what the hub's client raises where it finds neither the repository nor a copy of it."""
    error = LocalEntryNotFoundError("An error happened while trying to locate the files on the Hub")
    error.__cause__ = cause
    return error


TOKEN = r"set HF_TOKEN to a token .*\(docs/MODELS.md\)$"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (raised(GatedRepoError, 403), rf"model 'meta/gated' is gated: accept its terms .*{TOKEN}"),
        (offline(raised(GatedRepoError, 401)), rf"is gated: accept its terms .*{TOKEN}"),
        (raised(RepositoryNotFoundError, 401), rf"refused by the hub: if it is private or gated, {TOKEN}"),
        (offline(raised(HfHubHTTPError, 403)), rf"refused by the hub: .*{TOKEN}"),
        (raised(RepositoryNotFoundError, 404), "the download from the hub failed: 404 Client Error"),
        (offline(OSError("no route")), "the download from the hub failed: An error happened"),
    ],
)
def test_a_model_that_the_hub_gives_to_others_only_names_the_token(error, says, monkeypatch):
    monkeypatch.setattr(checkpoint_folder, "snapshot_download", Mock(side_effect=error))
    with pytest.raises(CheckpointError, match=says) as refused:
        checkpoint_folder.find_folder("meta/gated")
    assert "\n" not in str(refused.value)
    assert ("HF_TOKEN" in str(refused.value)) == ("HF_TOKEN" in says)


def test_missing_shards_are_listed(folder: Path) -> None:
    assert checkpoint_folder.find_folder(str(folder)) == folder
    (folder / SHARDS[0]).unlink()
    (folder / SHARDS[2]).unlink()
    with pytest.raises(CheckpointError, match=rf"2 of the files .* missing .*: {SHARDS[0]}, {SHARDS[2]}; get"):
        checkpoint_folder.find_folder(str(folder))


def test_only_the_weights_that_the_index_names_are_checked(folder: Path) -> None:
    for shard in SHARDS:
        save_file({}, folder / shard)
    (folder / "consolidated.safetensors").write_bytes(checkpoint_folder.LFS_POINTER)
    checkpoint_folder.refuse_weights("x", folder)
    (folder / SHARDS[1]).write_bytes(checkpoint_folder.LFS_POINTER)
    with pytest.raises(CheckpointError, match=f"{SHARDS[1]} is a Git LFS pointer"):
        checkpoint_folder.refuse_weights("x", folder)


@pytest.mark.parametrize("method", ["is_dir", "exists", "read_text"])
def test_a_folder_that_this_user_may_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(Path, method, Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(CheckpointError, match=r"Permission denied; let this user read|cannot be read as JSON"):
        checkpoint_folder.find_folder(str(folder))


def test_weights_in_one_file_need_no_shards(folder: Path) -> None:
    for shard in SHARDS:
        (folder / shard).rename(folder / "model.safetensors")
    assert checkpoint_folder.find_folder(str(folder)) == folder


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": ["x"]}', '{"weight_map": {"x": 1}}', "{"])
def test_a_damaged_index(folder: Path, content: str) -> None:
    (folder / checkpoint_folder.INDEX).write_text(content)
    with pytest.raises(CheckpointError, match=r"model.safetensors.index.json"):
        checkpoint_folder.find_folder(str(folder))


def test_a_shard_by_a_name_that_no_file_can_have_is_missing(folder: Path) -> None:
    (folder / checkpoint_folder.INDEX).write_text(json.dumps({"weight_map": {"a": "x" * 5000, "b": "\x1b[31m\0"}}))
    with pytest.raises(CheckpointError, match=r"2 of the files .* \\x1b\[31m\\x00, x{80}; get"):
        checkpoint_folder.find_folder(str(folder))
