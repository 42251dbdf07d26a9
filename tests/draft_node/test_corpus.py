"""Folders of documents become token ids: in order, bounded, and without what cannot or must not be read."""

import os
from pathlib import Path

import pytest

from draft_node.process import histories
from goodspeed.engine.tokenizing.text import decode
from goodspeed.engine.tokenizing.tokenizer_folder import load

TOKENIZER = load("tiny-target").tokenizer


def read(*folders: Path, max_tokens: int = 10_000) -> tuple[list[str], list[str]]:
    """The texts, and what was told."""
    told: list[str] = []

    def tell(what: str, *values: object) -> None:
        told.append(what % values)

    texts = histories.read_corpus(tuple(map(str, folders)), TOKENIZER, max_tokens, tell)
    return [decode(TOKENIZER, tokens) for tokens in texts], told


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "x.py").write_text("print(1)\n")
    (folder / "a.MD").write_text("# Größe\n", encoding="utf-8")
    (folder / "empty.txt").touch()
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return folder


def test_files_come_in_order_with_their_number(folder: Path) -> None:
    texts, told = read(folder)
    assert texts == ["# Größe\n", "print(1)\n"]
    num_tokens = sum(len(TOKENIZER(text)["input_ids"]) for text in texts)
    assert told == [f"--corpus {folder}: {num_tokens} tokens in 2 files"]


def test_a_file_that_is_no_text_is_named_and_the_others_are_read(folder: Path) -> None:
    (folder / "0.txt").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(folder / "1.txt")
    texts, told = read(folder)
    assert len(texts) == 2
    assert [line.split(" is left out: ")[0] for line in told[:2]] == [f"--corpus: {folder}/{n}.txt" for n in "01"]
    assert "regular" in told[1]


def test_a_folder_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    texts, told = read(folder)
    assert texts == ["# Größe\n"]
    assert told[0] == f"--corpus: {folder / 'b'} is left out: Permission denied"


def test_a_name_cannot_forge_a_line(folder: Path) -> None:
    (folder / "a\x1b[2J\nall is well.txt").write_bytes(b"\xff")
    assert read(folder)[1][0].startswith(f"--corpus: {folder}/a?[2J?all is well.txt is left out: ")


def test_a_large_file_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_FILE_BYTES", 8)
    texts, told = read(folder)
    assert texts == []
    assert all("has more than" in line for line in told[:-1])


def test_links_inside_are_followed_and_links_out_are_not(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "more.txt").write_text("more secret")
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "out").symlink_to(tmp_path / "secrets")
    (folder / "round.txt").symlink_to(folder / "round.txt")
    (folder / "in.txt").symlink_to(folder / "b" / "x.py")
    assert read(folder)[0] == ["# Größe\n", "print(1)\n", "print(1)\n"]


def test_reading_ends_at_the_bound(folder: Path) -> None:
    whole = TOKENIZER("# Größe\n")["input_ids"]
    texts, told = read(folder, max_tokens=len(whole))
    assert texts == ["# Größe\n"]
    assert told[0] == f"--corpus {folder}: {len(whole)} tokens are read, and the rest is left out"
    (folder / "b" / "x.py").unlink()
    assert read(folder, max_tokens=len(whole))[1] == [f"--corpus {folder}: {len(whole)} tokens in 1 files"]
    texts, told = read(folder, max_tokens=1)
    assert texts == [decode(TOKENIZER, whole[:1])]
    assert told[0] == f"--corpus {folder}: 1 tokens are read, and the rest is left out"


def test_nothing_is_encoded_beyond_the_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = histories._encoded

    def told_of(text: str, tokenizer: object) -> tuple[int, ...]:
        encoded.append(text)
        return encode(text, tokenizer)

    monkeypatch.setattr(histories, "_encoded", told_of)
    _, told = read(folder, folder / "b", max_tokens=len(TOKENIZER("# Größe\n")["input_ids"]))
    assert encoded == ["# Größe\n"]
    assert sum("the rest is left out" in line for line in told) == 2


def test_several_folders_share_the_bound(folder: Path) -> None:
    num_tokens = sum(len(TOKENIZER(text)["input_ids"]) for text in read(folder)[0])
    texts, told = read(folder, folder / "b", max_tokens=num_tokens)
    assert texts == ["# Größe\n", "print(1)\n"]
    assert told[-1] == f"--corpus {folder / 'b'}: 0 tokens in 0 files"


def test_a_folder_that_takes_long_is_told_of_in_between(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "PROGRESS_S", 0.0)
    _, told = read(folder)
    counts = [line.split(" tokens in ")[1] for line in told]
    assert counts == ["1 files so far", "1 files so far", "2 files so far", "2 files"]
