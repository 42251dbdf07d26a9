"""Whatever the documents name exists: links, anchors, paths, modules, options, `make` targets. Guides stay short."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "experiments/README.md")),
    *(ROOT / "docs").glob("*.md"),
]
NAMES = sorted(str(path.relative_to(ROOT)) for path in DOCUMENTS)

MOST_LINES = {"README.md": 120, "docs/ARCHITECTURE.md": 250}
MOST_CHARACTERS = 140  # the most characters of a line of prose; tables and pictures of text may be wider
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
ROOMS = "verify_node|draft_node|goodspeed|tests|experiments|docker|docs"
FILE = re.compile(rf"(?<![\w/.-])(?:{ROOMS}|\.ci)/[\w./-]*\w")
SOURCES = ("goodspeed", "verify_node", "draft_node", "experiments", "training", "tests")
PYTHON_FILE = re.compile(r"`([\w/]+\.py)`")
MODULE = re.compile(r"python -m ((?:experiments|tests|goodspeed|verify_node|draft_node)[\w.]*)")
TARGET = re.compile(r"^make ((?:[a-z][\w-]*|\.venv)(?: [a-z][\w-]*)*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+\b")

FROM_AN_INDEX = re.compile(r"""\bpip3?\s+install\s+(?:-\S+\s+)*['"]?good[s]peed\b|['"`]good[s]peed\[[a-z]""")
"""What would have a user install a package of this name from an index, where it is anybody's."""

FOREIGN = {  # options of other programs
    *("--build-arg", "--check", "--modelfile", "--profile"),  # docker, ruff, ollama, docker compose and a load tool
    *("--backend", "--per-chunk-usage", "--url", "--use-server-token-count"),  # load tools
}


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors that GitHub gives to the headings of a document."""
    headings = HEADING.findall(FENCE.sub("", path.read_text("utf-8")))
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@cache
def make_targets() -> frozenset[str]:
    rules = re.findall(r"^([.\w][\w. -]*):(?!=)", text_of("Makefile"), re.MULTILINE)
    return frozenset(word for rule in rules for word in rule.split())


@cache
def known_options() -> frozenset[str]:
    """Options written out in our sources, options that come from fields of settings, and their `--no-` forms."""
    rooms = (*SOURCES[:-1], "tests/fuzz", "tests/faults/soak")
    files = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    written = {option for path in files for option in re.findall(r'"(--[a-z][a-z0-9-]+)"', path.read_text("utf-8"))}
    texts = {path: path.read_text("utf-8") for path in files}
    settings = [text for path, text in texts.items() if path.stem in {"config", "options"} or "Settings):" in text]
    fields = {name for source in settings for name in re.findall(r"^    (\w+): ", source, re.MULTILINE)}
    positive = written | {f"--{field.replace('_', '-')}" for field in fields}
    return frozenset(positive | {option.replace("--", "--no-", 1) for option in positive} | {"--help", "--version"})


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(name: str) -> None:
    document, wrong = ROOT / name, []
    for link in LINK.findall(FENCE.sub("", text_of(name))):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_every_path_that_is_named_exists(name: str) -> None:
    named = {path for code in CODE.findall(text_of(name)) for path in FILE.findall(code)}
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_file_that_our_sources_name_exists() -> None:
    files = [path for room in SOURCES for path in (ROOT / room).rglob("*.py")]
    known = {"/".join(path.parts[-count:]) for path in files for count in range(1, len(path.parts) + 1)}
    named = {(found, path) for path in files for found in PYTHON_FILE.findall(path.read_text("utf-8"))}
    assert {f"{path.relative_to(ROOT)}: {found}" for found, path in named if found not in known} == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_module_that_is_run_exists(name: str) -> None:
    modules = {module for module in MODULE.findall(text_of(name)) if not module.endswith("NAME")}
    stems = {ROOT / module.rstrip(".").replace(".", "/") for module in modules}
    assert {stem for stem in stems if not (stem.is_dir() or stem.with_suffix(".py").is_file())} == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_make_target_exists(name: str) -> None:
    code = "\n".join([*CODE.findall(text_of(name)), *FENCE.findall(text_of(name))])
    named = {target for words in TARGET.findall(code) for target in words.split()}
    assert named - make_targets() == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_option_that_is_named_exists(name: str) -> None:
    named = {option for code in CODE.findall(FENCE.sub("", text_of(name))) for option in OPTION.findall(code)}
    assert named - known_options() - FOREIGN == set()


def test_nobody_is_told_to_install_this_project_from_an_index() -> None:
    folders = ("goodspeed", "verify_node", "draft_node", "experiments", "training", "tests", "docker", "docs")
    kinds = {".py", ".md", ".sh", ".yaml", ".txt", ".toml", ".service", ".Dockerfile", ".html", ".js"}
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    files += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    told = {str(path.relative_to(ROOT)): FROM_AN_INDEX.findall(path.read_text("utf-8")) for path in files}
    assert len(told) > 500
    assert {name: found for name, found in told.items() if found} == {}


@pytest.mark.parametrize("words", ["pip install {}", "pip install -U {}", "pip3 install '{}[ray]'", "extra `{}[app]`"])
def test_every_form_of_installing_it_from_an_index_is_seen(words: str) -> None:
    assert FROM_AN_INDEX.search(words.format("goodspeed"))


@pytest.mark.parametrize(("name", "most"), MOST_LINES.items())
def test_guides_stay_short(name: str, most: int) -> None:
    assert len(text_of(name).splitlines()) <= most


@pytest.mark.parametrize("name", NAMES)
def test_lines_of_prose_fit_a_screen(name: str) -> None:
    lines = FENCE.sub("", text_of(name)).splitlines()
    assert [line for line in lines if len(line) > MOST_CHARACTERS and not line.startswith(("|", "!", "<"))] == []
