"""`goodspeed pad` on the command line."""

from pathlib import Path

import pytest

from goodspeed.app import cli
from goodspeed.app.models import num_parameters


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
