"""The rules about the code itself, each a function from the root of a checkout to its breaches, as `file:line: what`.

They read the source with `ast` and import nothing of it, so a planted breach in a toy tree is found the same way.
"""

import ast
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

PACKAGE = "treadle"
# "<": a package may import those to its left; "|": it may import none of its rank. Lower lines are higher ranks.
RANKS = (
    "base < ir < formula < ops",
    "frontend | transforms | plan | lower | kernels | runtime",
    "driver < api",
    "array < nn < optim < data < train < models < te < parallel < compat",
    "insight | export | lite | serve | federated | compress | tune | cli",
)
PLACE = {
    name: (rank, i, "<" in line) for rank, line in enumerate(RANKS) for i, name in enumerate(re.findall(r"\w+", line))
}
PRODUCTS = len(RANKS) - 1  # these are users of the package: they may import `treadle` itself

# Third parties beside numpy and the packages that may import them; EAGER ones may do so at the top of a file.
THIRD_PARTIES = {
    "ml_dtypes": {"base", "ops", "lower", "runtime", "train"},
    "jax": {"lower", "runtime"},
    "jaxlib": {"lower", "runtime"},
    "llvmlite": {"kernels"},
    "rich": {"train", "insight", "cli"},
    "safetensors": {"train", "export"},
    "matplotlib": {"train", "insight", "cli"},
    "onnx": {"export"},
}
EAGER = {"lower", "runtime"}

FILE_LINES, FUNCTION_LINES, TOP_NAMES = 600, 60, 60
CODE = ("src", "tests", "bench", "examples")
SKIPPED = {".git", ".venv", ".venv-peers", "__pycache__", "shared", "runs", "build", "dist", ".hypothesis"}
BINARY = {".npz", ".png", ".pyc", ".safetensors", ".bin", ".pt", ".gz", ".onnx"}


def package_files(root: Path) -> Iterator[tuple[Path, str, ast.Module]]:
    """Each source file of the package, the part of the package it belongs to ("" for __init__), and its tree."""
    base = root / "src" / PACKAGE
    for file in sorted(base.rglob("*.py")):
        part = file.relative_to(base).parts[0].removesuffix(".py")
        yield file, "" if part in ("__init__", "__main__") else part, ast.parse(file.read_text(), str(file))


def code_files(root: Path) -> list[Path]:
    return sorted(f for top in CODE for f in (root / top).rglob("*.py") if not SKIPPED & set(f.parts))


def say(root: Path, file: Path, line: int, what: str) -> str:
    return f"{file.relative_to(root)}:{line}: {what}"


def imports(root: Path, file: Path, tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """Line and full dotted path of everything that the file imports, relative imports resolved."""
    package = [*file.relative_to(root / "src").parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            for alias in node.names:
                yield node.lineno, [*start, *(node.module.split(".") if node.module else []), alias.name]


def import_ranks(root: Path) -> list[str]:
    """A part imports lower ranks only; of its own rank nothing, or only what stands left of it."""
    found = []
    for file, part, tree in package_files(root):
        if not part:
            continue
        if part not in PLACE:
            found.append(say(root, file, 1, f"{part} has no place in the ranks"))
            continue
        rank, position, ordered = PLACE[part]
        for line, path in imports(root, file, tree):
            if path[0] != PACKAGE or path[1:2] == [part]:
                continue
            if len(path) == 1 or path[1] not in PLACE:
                if rank < PRODUCTS:
                    found.append(say(root, file, line, f"{part} may not import the package as its users do"))
                continue
            their_rank, their_position, _ = PLACE[path[1]]
            if their_rank > rank or (their_rank == rank and not (ordered and their_position < position)):
                found.append(say(root, file, line, f"{part} may not import {path[1]}"))
    return found


def third_parties(root: Path) -> list[str]:
    """Only numpy is free; others are imported where THIRD_PARTIES says, inside functions unless the part is EAGER."""
    found = []
    for file, part, tree in package_files(root):
        late = {line for f in ast.walk(tree) if is_late(f) for line in range(f.lineno, f.end_lineno + 1)}
        for line, path in imports(root, file, tree):
            name = path[0]
            if name in sys.stdlib_module_names or name in (PACKAGE, "numpy"):
                continue
            if part not in THIRD_PARTIES.get(name, ()):
                found.append(say(root, file, line, f"{part or PACKAGE} may not import {name}"))
            elif part not in EAGER and line not in late:
                found.append(say(root, file, line, f"import {name} inside the function that needs it"))
    return found


def is_late(node: ast.AST) -> bool:
    """Whether what stands inside does not run when the file is imported: a function, or `if TYPE_CHECKING`."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" and not node.orelse
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def environment(root: Path) -> list[str]:
    """Only base/flags.py reads or sets environment variables."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    found = []
    for file, _, tree in package_files(root):
        if file == root / "src" / PACKAGE / "base" / "flags.py":
            continue
        for node in ast.walk(tree):
            used = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
            if (used and node.attr in names) or (
                isinstance(node, ast.ImportFrom) and node.module == "os" and names & {a.name for a in node.names}
            ):
                found.append(say(root, file, node.lineno, "only base/flags.py reads the environment: add a flag"))
    return found


def sizes(root: Path) -> list[str]:
    """Files, functions and numbers of top-level names are within bounds."""
    found = []
    for file in code_files(root):
        text = file.read_text()
        tree = ast.parse(text, str(file))
        lines, names = text.count("\n"), top_names(tree)
        if lines > FILE_LINES:
            found.append(say(root, file, FILE_LINES, f"the file has {lines} lines, more than {FILE_LINES}"))
        if len(names) > TOP_NAMES:
            what = f"the file has {len(names)} top-level names, more than {TOP_NAMES}"
            found.append(say(root, file, 1, what))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES:
                    what = f"{node.name} has {lines} lines, more than {FUNCTION_LINES}"
                    found.append(say(root, file, node.lineno, what))
    return found


def top_names(tree: ast.Module) -> set[str]:
    """What the file defines at its top level, imports and `_` left out."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return names - {"_"}


def op_tables(root: Path, ops: Collection[str]) -> list[str]:
    """No table keyed by op name outside ops/: a literal, a `match` or a chain of `==` that knows three ops or more."""
    found = []
    for file, part, tree in package_files(root):
        if part == "ops":
            continue
        public = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Assign) and is_all(n.targets[0])}
        for node in ast.walk(tree):
            known = [] if id(node) in public else sorted(set(keys(node)) & set(ops))
            if len(known) >= 3:
                what = f"a table of ops outside ops/: {', '.join(known[:5])}; make it a rule of the ops"
                found.append(say(root, file, node.lineno, what))
    return found


def is_all(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "__all__"


def keys(node: ast.AST) -> Iterator[str]:
    """The names that the node, were it a table of ops, has as keys."""
    if isinstance(node, ast.Dict):
        for key in node.keys:
            if isinstance(key, ast.Attribute):
                yield key.attr
            elif isinstance(key, ast.Name):
                yield key.id
            else:
                yield from strings(key)
    elif isinstance(node, ast.List | ast.Set | ast.Tuple):
        for element in node.elts:
            yield from strings(element.elts[0] if isinstance(element, ast.Tuple) and element.elts else element)
    elif isinstance(node, ast.Match):
        for pattern in (p for case in node.cases for p in ast.walk(case.pattern)):
            if isinstance(pattern, ast.MatchValue):
                yield from strings(pattern.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        yield from (k.arg for k in node.keywords if k.arg)
    elif isinstance(node, ast.FunctionDef):
        for test in (n for n in ast.walk(node) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Eq)):
            yield from (s for side in (test.left, *test.comparators) for s in strings(side))


def strings(node: ast.AST | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def unfinished(root: Path) -> list[str]:
    """No notes about missing work in the package, and no blanket exception that is dropped."""
    pattern = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|NotImplemented" r"Error)\b")
    found = []
    for file, _, tree in package_files(root):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if hit := pattern.search(line):
                found.append(say(root, file, number, f"{hit[1]}: finish it, or raise a UserError that says so"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and is_blanket(node.type) and isinstance(node.body[0], ast.Pass):
                found.append(say(root, file, node.lineno, "every exception is caught and dropped"))
    return found


def is_blanket(kind: ast.expr | None) -> bool:
    return kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))


def ascii_only(root: Path) -> list[str]:
    """Code is ASCII."""
    found = []
    others = [root / name for name in ("Makefile", "pyproject.toml", ".ci/run") if (root / name).exists()]
    for file in [*code_files(root), *others]:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if not line.isascii():
                strange = next(c for c in line if not c.isascii())
                found.append(say(root, file, number, f"{strange!a} is not ASCII"))
    return found


def machine_paths(root: Path) -> list[str]:
    """No file names a folder of one machine or the host of a package index."""
    folders = r"(?<![\w.])/(?:work|opt|root|home|Users)/\w+|/tmp/" r"v/"
    hosts = r"py" r"pi\.org|python" r"hosted\.org|download\.py" r"torch\.org|index-url[ =]\S*//"
    pattern = re.compile(f"{folders}|{hosts}")
    found = []
    for file in sorted(f for f in root.rglob("*") if f.is_file() and f.suffix not in BINARY):
        parts = file.relative_to(root).parts
        if SKIPPED & set(parts) or any(p.endswith((".egg-info", "_cache")) for p in parts):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if hit := pattern.search(line):
                found.append(say(root, file, number, f"{hit[0]} belongs to one machine or index"))
    return found


def judge(found: list[str], exceptions: Collection[str]) -> list[str]:
    """The breaches that no exception (`file`, or `file:function`) covers, then the exceptions that cover none."""
    covered: dict[str, list[str]] = {}
    for exception in exceptions:
        file, _, function = exception.partition(":")
        sign = f": {function} has " if function else ""
        covered[exception] = [b for b in found if b.startswith(f"{file}:") and sign in b]
    left = [breach for breach in found if not any(breach in breaches for breaches in covered.values())]
    return left + [f"{e} keeps the rule now: take it off the list" for e, breaches in covered.items() if not breaches]
