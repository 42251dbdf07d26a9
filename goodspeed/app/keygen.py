"""Makes the keys with which draft nodes and the verify node authenticate each other and encrypt their messages, and the
API keys of users.

The verify node and each draft node have a pair of files: NAME.key is secret and stays on the node's machine; NAME.pub
is handed over to the other side. A user has one file, NAME.api-key.
"""

import argparse
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from goodspeed.errors import ConfigError
from goodspeed.wire import enrolled, keys

NAME = "keygen"
HELP = "make the keys of a verify node, of a draft node or of a user"
EXAMPLE = "goodspeed keygen draft edge-1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    chosen = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    verify = chosen.add_parser("verify", help="the verify node's pair: verify.key and verify.pub")
    verify.set_defaults(make=make_verify)
    draft = chosen.add_parser("draft", help="a draft node's pair: NAME.key and NAME.pub")
    draft.add_argument("name", metavar="NAME", help="the client's name, the unit of fairness")
    draft.set_defaults(make=make_draft)
    user = chosen.add_parser("user", help="a user's API key: NAME.api-key")
    user.add_argument("name", metavar="NAME", help="the user's name, for the file only")
    user.set_defaults(make=make_user)
    for added in (verify, draft, user):
        added.add_argument("--folder", type=Path, default=Path(), help="where the files go (default: here)")


def run(namespace: argparse.Namespace) -> int:
    namespace.make(namespace)
    return 0


def make_verify(namespace: argparse.Namespace) -> None:
    secret, public = _new(namespace.folder, "verify.key", "verify.pub")
    from goodspeed.wire.zmq.authentication import new_pair  # imported here because it loads ZeroMQ

    pair = new_pair()
    _write(secret, pair, lambda: keys.write_verify_key(public, pair.public_key))
    print(
        f"{secret}: secret. Keep it on the verify node, and start that with\n"
        f"    goodspeed-verify --key {secret} --enrolled FOLDER ...\n"
        f"{public}: public. Give it to every draft node, for --verify-key."
    )


def make_draft(namespace: argparse.Namespace) -> None:
    name = _checked(namespace.name)
    secret, public = _new(namespace.folder, f"{name}.key", f"{name}.pub")
    from goodspeed.wire.zmq.authentication import new_pair

    pair = new_pair(name)
    record = enrolled.Enrolled(name, pair.public_key)
    _write(secret, pair, lambda: keys.write_enrolled(public, record))
    print(
        f"{secret}: secret. Keep it on the draft node, and start that with\n"
        f"    goodspeed-draft --key {secret} --verify-key verify.pub ...\n"
        f"{public}: public. Copy it into the verify node's folder of --enrolled, and write limits into it\n"
        "there, if there are to be any (docs/KEYS.md); removing it revokes the key."
    )


def make_user(namespace: argparse.Namespace) -> None:
    name = _checked(namespace.name)
    (file,) = _new(namespace.folder, f"{name}.api-key")
    keys.write_api_key(file, secrets.token_urlsafe(32))
    print(
        f"{file}: secret. Give it to the user, whose client sends it as `Authorization: Bearer KEY`.\n"
        f"Start the node with --api-key {file}, or add the line to the keys of a node that runs:\n"
        f"    cat {file} >> API_KEYS"
    )


def _checked(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name) or name.startswith("."):
        raise ConfigError(f"{name!r} must be 1 to 64 letters, digits, dots, dashes or underscores, not a dot first")
    return name


def _write(secret: Path, pair: keys.KeyPair, write_public: Callable[[], None]) -> None:
    """Writes both files of a pair, or neither, so that the command can be repeated."""
    keys.write_secret(secret, pair)
    try:
        write_public()
    except BaseException:
        secret.unlink()
        raise


def _new(folder: Path, *names: str) -> list[Path]:
    """Returns the files' paths, and makes their folder. ConfigError if a file exists."""
    paths = [folder / name for name in names]
    for path in paths:
        if os.path.lexists(path):
            raise ConfigError(f"{path} already exists; remove it, or write to another --folder")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}; name another --folder") from None
    return paths
