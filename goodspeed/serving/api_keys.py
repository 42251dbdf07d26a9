"""Files of API keys, one key a line, for nodes and clients."""

import re
from pathlib import Path

from goodspeed.errors import ConfigError, reason

ONE_A_LINE = "write a file with one key a line"


def read(path: str) -> list[str]:
    """Reads a file's keys, without blank lines and # comments. ConfigError for a bad key, or without any."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key {path}: cannot read it ({reason(error)}); {ONE_A_LINE}") from None
    keys = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        if not is_key(line):
            raise ConfigError(
                f"--api-key {path}: line {number} is no key; 8 to 512 printable ASCII characters, no blanks"
            )
        keys.append(line)
    if not keys:
        raise ConfigError(f"--api-key {path}: there is no key in it; {ONE_A_LINE}")
    return keys


def is_key(text: str) -> bool:
    return re.fullmatch(r"[!-~]{8,512}", text) is not None
