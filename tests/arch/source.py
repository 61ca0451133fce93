"""The project's own source files, and what they import."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = ("inferdbg", "engine", "probes", "tui")
"""Code folders at the root. The last three are links inside the first, where they are imported from."""


class Import(NamedTuple):
    """``level``: dots of a relative import, 0 for an absolute one. ``inside``: in a function or under TYPE_CHECKING,
    so not run when the module is loaded."""

    file: Path
    line: int
    module: str
    level: int
    inside: bool

    @property
    def where(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def files(folder: str) -> list[Path]:
    """Python files of a code folder, each once: links are not followed."""
    return sorted(
        path
        for path in (ROOT / folder).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents if parent != ROOT and ROOT in parent.parents)
    )


def imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from _imports(path, tree, inside=False)


def _imports(path: Path, node: ast.AST, *, inside: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for name in child.names:
                yield Import(path, child.lineno, name.name, 0, inside)
        elif isinstance(child, ast.ImportFrom):
            yield Import(path, child.lineno, child.module or "", child.level, inside)
        else:
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(child)
            yield from _imports(path, child, inside=inside or deferred)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
