"""`goodspeed pad` on the command line."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from goodspeed.app import cli, pad
from goodspeed.app.models import num_parameters
from goodspeed.embedded import models
from goodspeed.engine.exporting import padding
from goodspeed.errors import ConfigError


def run(*words: str) -> int:
    parser = cli.build_parser()
    namespace = parser.parse_args(["pad", *words])
    return int(namespace.subcommand.run(namespace))


def test_a_size_of_ones_own_is_made_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "padded"

    assert run("tiny-draft-s", str(folder), "--hidden", "160", "--intermediate", "400", "--layers", "3") == 0

    millions = num_parameters(folder / "model.safetensors") / 1e6
    assert capsys.readouterr().out == f"{folder}: {millions:.0f}M parameters; its texts are those of tiny-draft-s\n"
    assert (folder / "tokenizer.json").is_file()


def test_the_cache_s_copy_is_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(padding.LIKE, "116m", padding.Shape(160, 400, 6, 160, 160))
    told = []
    for _ in range(2):
        assert run("tiny-draft-s") == 0
        told.append(capsys.readouterr())
    folder = Path(told[0].out.strip())
    assert folder.parents[2] == tmp_path
    assert (folder.name, told[1].out) == ("tiny-draft-s-116m", told[0].out)
    assert "padding tiny-draft-s to 116M parameters, once" in told[0].err
    assert not told[1].err

    monkeypatch.setattr(pad, "VERSION", pad.VERSION + 1)
    assert run("tiny-draft-s") == 0
    assert Path(capsys.readouterr().out.strip()) != folder


def test_a_size_of_0_is_refused(tmp_path: Path) -> None:
    for size in ("hidden", "intermediate", "layers"):
        with pytest.raises(ConfigError, match=f"larger than that shape .*{size} 0 < "):
            run("tiny-draft-s", str(tmp_path / "padded"), f"--{size}", "0")


def test_the_cache_s_copy_is_made_anew_when_a_file_beside_the_weights_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(padding.LIKE, "116m", padding.Shape(160, 400, 3, 160, 160))
    model = shutil.copytree(models.path("tiny-draft-s"), tmp_path / "model")
    for name in ("chat_template.jinja", "tokenizer.model", "merges.txt"):
        before = pad.in_cache(str(model))
        (model / name).write_text("other")
        assert (pad.in_cache(str(model)) / name).read_text() == "other"
        assert not (before / name).exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tmp_path / "file", tmp_path / ("n" * 300)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match=f"{place}/.* cannot be written: .*; choose another place"):
            run("tiny-draft-s")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError))
    with pytest.raises(ConfigError, match="no home folder for the cache; set XDG_CACHE_HOME"):
        run("tiny-draft-s")


def test_a_size_of_ones_own_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match="needs a FOLDER"):
        run("tiny-draft-s", "--layers", "3")
