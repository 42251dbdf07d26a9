"""Finds, in source, what turns bytes into code or text into commands.

Names are followed through `import ... as` and `from ... import`, and count wherever they are mentioned: a banned
function that is only handed on is found too.
"""

import ast
import re
from collections.abc import Iterator

MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle", "runpy"}
"""Importing one of these, or anything from it, is banned."""

NAMES = {
    *("eval", "exec", "compile", "__import__"),
    *(f"builtins.{name}" for name in ("eval", "exec", "compile", "__import__")),
    *("torch.load", "torch.hub", "torch.serialization", "torch.package", "pandas.read_pickle"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.UnsafeLoader"),
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"),
    *("asyncio.create_subprocess_shell", "asyncio.subprocess.create_subprocess_shell"),
}
"""Mentioning one of these, or anything below it, is banned."""

ATTRIBUTES = {"recv_pyobj", "send_pyobj"}
"""Methods of whatever object: pickle by another name."""

KEYWORDS = {"trust_remote_code": False, "allow_pickle": False, "shell": False, "weights_only": True}
"""Keyword arguments, and entries of dictionaries, that may have this value only, written out."""

COMMANDS = {f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")}
"""Take a list of words, never one text."""

IN_SCRIPTS = re.compile(
    r"\b(pickle|marshal|shelve|dill|joblib|torch\.load|torch\.hub|(recv|send)_pyobj)\b"
    r"|trust_remote_code(?!\s*=\s*False)|allow_pickle(?!\s*=\s*False)|(?<![\w.-])(eval(?=[\s(])|exec\()"
    r"|\b(curl|wget)\b[^\n]*\|\s*(ba|da)?sh\b"
)
"""The calls that are banned in shell scripts and Dockerfiles, and in the programs that stand in them."""


def found_in(tree: ast.Module) -> list[tuple[int, str]]:
    """(line, what) of each banned use in a file of Python."""
    names = _imported(tree)
    found: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        found |= {(getattr(node, "lineno", 0), what) for what in _uses(node, names)}
    return sorted(found)


def found_in_script(text: str) -> list[tuple[int, str]]:
    """(line, what) of each banned use in a shell script or a Dockerfile."""
    return [
        (number, match[0])
        for number, line in enumerate(text.splitlines(), 1)
        for match in IN_SCRIPTS.finditer(line)
    ]  # fmt: skip


def _imported(tree: ast.Module) -> dict[str, str]:
    """Returns what each imported name stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _uses(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    for name in _mentioned(node, names):
        if name.split(".")[0] in MODULES or any(name == banned or name.startswith(f"{banned}.") for banned in NAMES):
            yield name
        if name.split(".")[-1] in ATTRIBUTES:
            yield name
    for keyword, value in _settings(node):
        if keyword in KEYWORDS and not (isinstance(value, ast.Constant) and value.value is KEYWORDS[keyword]):
            yield f"{keyword}={ast.unparse(value)}"
    if isinstance(node, ast.Call):
        yield from _call(node, names)


def _mentioned(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(level=0, module=str(module)):
            yield from (f"{module}.{alias.name}" for alias in node.names)
        case ast.Name() | ast.Attribute():
            yield _dotted(node, names)
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(attribute)), *_]):
            yield f"{_dotted(owner, names)}.{attribute}"


def _call(node: ast.Call, names: dict[str, str]) -> Iterator[str]:
    called = _dotted(node.func, names)
    first = node.args[0] if node.args else next((word.value for word in node.keywords if word.arg == "args"), None)
    if called.split(".")[-1] == "import_module" and first is not None:
        if not isinstance(first, ast.Constant):
            yield f"import_module({ast.unparse(first)})"
        elif str(first.value).split(".")[0] in MODULES:
            yield str(first.value)
    if called in COMMANDS and first is not None and _is_text(first):
        yield f"{called}({ast.unparse(first)})"


def _settings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Call):
        yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value


def _is_text(node: ast.expr) -> bool:
    """True if an expression is a text for certain: written out, put together, or formatted."""
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
        case ast.BinOp(left=left, right=right):
            return _is_text(left) or _is_text(right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="join" | "format")):
            return True
    return False


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else "?"
