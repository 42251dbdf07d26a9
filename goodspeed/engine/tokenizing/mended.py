"""Corrects what libraries cannot read in a checkpoint's JSON files, in copies beside links to all other files."""

import codecs
import json
from pathlib import Path
from tempfile import TemporaryDirectory

_KEPT: list[TemporaryDirectory[str]] = []  # until the process ends


def mended(folder: Path) -> Path:
    """Returns a folder whose JSON files can be read: the folder itself, or a copy that links to its other files.

    Some editors begin a text with a byte order mark, which JSON does not have. Some programs leave an empty
    `quantization_config` in config.json, which means that there is none.
    """
    corrected = {
        path.name: text for path in folder.glob("*.json") if path.is_file() and (text := _corrected(path)) is not None
    }
    if not corrected:
        return folder
    place = TemporaryDirectory(prefix="goodspeed-checkpoint-")
    _KEPT.append(place)
    copy = Path(place.name) / folder.parent.name / folder.name  # the names tell a hub snapshot's revision
    copy.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name in corrected:
            (copy / path.name).write_bytes(corrected[path.name])
        else:
            (copy / path.name).symlink_to(path.resolve())
    return copy


def _corrected(path: Path) -> bytes | None:
    """Returns the corrected text of a file; None: it needs no correction, or is beyond it."""
    with path.open("rb") as file:
        has_mark = file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
    text = path.read_bytes().removeprefix(codecs.BOM_UTF8) if has_mark or path.name == "config.json" else b""
    if path.name == "config.json":
        try:
            config = json.loads(text)
        except (ValueError, RecursionError):  # whoever reads it next says so
            return text if has_mark else None
        if isinstance(config, dict) and not config.get("quantization_config", True):
            del config["quantization_config"]
            return json.dumps(config).encode()
    return text if has_mark else None
