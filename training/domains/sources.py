"""The `code` and `docs` domains: text that every machine with Python has.

The text differs between Python versions; the *names* under which it is held out (modules, help topics) do not.
"""

import ast
import importlib
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Generated tables and tests: long, and not worth learning.
SKIPPED = {
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "dist-packages",
    "encodings",
    "pydoc_data",
    "lib2to3",
    "__pycache__",
}
MIN_CHARS, MAX_CHARS = 300, 2400

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def modules() -> Iterator[tuple[str, str]]:
    """(top-level module name, source text) of the standard library, in a fixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not SKIPPED.intersection(parts) and not parts[0].startswith(("_sysconfigdata", "config-")):
            yield parts[0].removesuffix(".py"), path.read_text(encoding="utf-8", errors="replace")


def parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):  # a file for another Python
        return ast.Module(body=[], type_ignores=[])


def chunks(lines: list[str]) -> Iterator[str]:
    """Groups of consecutive lines of at most MAX_CHARS; a group below MIN_CHARS is left out."""
    group: list[str] = []
    size = 0
    for line in lines:
        if group and size + len(line) > MAX_CHARS:
            yield "".join(group)
            group, size = [], 0
        group.append(line)
        size += len(line)
    if size >= MIN_CHARS:
        yield "".join(group)


def functions(source: str, tree: ast.Module) -> Iterator[str]:
    """Functions and classes; small neighbours stand together in one document, long ones are cut."""
    lines = source.splitlines(keepends=True)
    kept: list[str] = []
    for node in tree.body:
        if isinstance(node, Definition):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            kept += [*lines[first - 1 : node.end_lineno], "\n", "\n"]
    return chunks(kept)


def docstrings(node: ast.Module | Definition) -> Iterator[str]:
    """Yields the docstrings of a module or definition, and of the definitions directly within each other."""
    text = ast.get_docstring(node)
    if text and len(text) >= 80:
        yield f"{getattr(node, 'name', 'Introduction')}\n\n{text}\n\n"
    for child in node.body:
        if isinstance(child, Definition):
            yield from docstrings(child)


def paragraphs(text: str) -> list[str]:
    return [f"{part.strip(chr(10))}\n\n" for part in text.split("\n\n") if part.strip()]


def topics() -> Iterator[tuple[str, str]]:
    """The interpreter's help topics and its licence."""
    texts = importlib.import_module("pydoc_data.topics").topics
    yield from ((name, texts[name]) for name in sorted(texts))
    licence = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    if licence.exists():
        yield "LICENSE", licence.read_text(encoding="utf-8")


@cache
def library() -> dict[str, list[tuple[str, str]]]:
    """{"code": ..., "docs": ...}: (module or topic, text) of every document of the two domains. Takes seconds once."""
    docs = [(name, part) for name, text in topics() for part in chunks(paragraphs(text))]
    code: list[tuple[str, str]] = []
    for module, source in modules():
        tree = parse(source)
        code += [(module, text) for text in functions(source, tree)]
        docs += [(module, text) for text in chunks(list(docstrings(tree)))]
    return {"code": code, "docs": docs}
