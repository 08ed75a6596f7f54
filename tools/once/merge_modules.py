"""Merge modules that have a single importer into that importer.

merge_modules.py [--root src/infoflow] [--dry] [--plan FILE] [--under PATH]... [--limit 350] [--max 200] [--through]
                 [--keep PATTERN]... [--no-ruff] [--ruff PATH] [--report FILE]

Run it at the root of a repository. Only the standard library is used. The same tree gives the same result.

A module M (private file, or any file in a private folder) whose only importer is N, a module of the same folder, is
merged into N. Users of a name that reaches them through a package's `__init__` are importers too, unless --through.
--dry writes the plan to stdout, one line `package._m -> package._n` per merge, and changes nothing. --plan FILE does
exactly these lines, in this order (the size limits are not asked again, the safety checks are); `!package._m` in the
plan forbids merges of that module.
"""

import argparse
import ast
import builtins
import fnmatch
import re
import subprocess
import symtable
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

TEXTS = (".py", ".md", ".ipynb", ".toml", ".yml", ".yaml", ".txt", ".cfg", ".ini", ".sh", ".jinja", ".bib")
ORDERED = ("claim", "register", "registered")  # decorators whose order of execution is seen by users
BUILTINS = set(dir(builtins))


class Skip(Exception):
    """Why two modules are not merged."""


# ---------------------------------------------------------------- modules and their imports


@dataclass(frozen=True)
class Use:
    """One alias of one import statement."""

    base: str  # resolved dotted module
    name: str | None  # None: `import base`
    bound: str
    when: str  # "eager", "typing" or "lazy"
    node: ast.stmt = field(compare=False)
    depth: int = 0  # 0: a statement of the module's body itself (or of its `if TYPE_CHECKING`)


class Module:
    def __init__(self, name: str, path: Path, text: str, package: bool):
        self.name, self.path, self.text, self.package = name, path, text, package
        self.tree = ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self.folder = name if package else name.rpartition(".")[0]
        self.uses = list(self._uses())

    def _uses(self):
        def walk(nodes, when, depth):
            for node in nodes:
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        yield Use(alias.name, None, alias.asname or alias.name.partition(".")[0], when, node, depth)
                elif isinstance(node, ast.ImportFrom):
                    base = resolve(self.folder, node)
                    for alias in node.names:
                        yield Use(base, alias.name, alias.asname or alias.name, when, node, depth)
                elif isinstance(node, ast.If) and is_typing(node) and depth == 0:
                    yield from walk(node.body, "typing" if when == "eager" else when, depth)
                    yield from walk(node.orelse, when, 1)
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from walk(node.body, "lazy", depth + 1)
                elif isinstance(node, ast.stmt):
                    yield from walk(blocks(node), when, depth + 1)

        return walk(self.tree.body, "eager", 0)


def blocks(node):
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(node, name, [])
    for handler in getattr(node, "handlers", []):
        yield from handler.body
    for case in getattr(node, "cases", []):
        yield from case.body


def is_typing(node: ast.If) -> bool:
    test = node.test
    return getattr(test, "id", None) == "TYPE_CHECKING" or getattr(test, "attr", None) == "TYPE_CHECKING"


def resolve(folder: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = folder.split(".")
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join(parts + (node.module.split(".") if node.module else []))


class Package:
    def __init__(self, root: Path, through: bool = False):
        self.root, self.top, self.through = root, root.name, through
        self.modules: dict[str, Module] = {}
        for path in sorted(root.rglob("*.py")):
            if "__pycache__" in path.parts:
                continue
            parts = [self.top, *path.relative_to(root).with_suffix("").parts]
            package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if package else parts)
            self.modules[name] = Module(name, path, path.read_text(encoding="utf-8"), package)
        self.index()

    def index(self) -> None:
        self.exports = {}
        for module in self.modules.values():
            if module.package:
                for use in module.uses:
                    if use.name and self.inside(use.base):
                        self.exports[module.name, use.bound] = (use.base, use.name)
        self.importers: dict[str, set[str]] = defaultdict(set)
        self.as_object: dict[str, set[str]] = defaultdict(set)
        for module in self.modules.values():
            for use in module.uses:
                for target in self.targets(use):
                    if not module.package and target != module.name:
                        self.importers[target].add(module.name)
                if use.name is None and use.base in self.modules:
                    self.as_object[use.base].add(module.name)
                elif use.name and f"{use.base}.{use.name}" in self.modules and (use.base, use.name) not in self.exports:
                    self.as_object[f"{use.base}.{use.name}"].add(module.name)
        self.closures = {}

    def inside(self, name: str) -> bool:
        return name == self.top or name.startswith(self.top + ".")

    def home(self, base: str, name: str) -> tuple[str, str | None]:
        """Where a name that is imported from a module is defined: module and name; None: it is the module."""
        seen = set()
        while (base, name) in self.exports and (base, name) not in seen:
            seen.add((base, name))
            base, name = self.exports[base, name]
        full = f"{base}.{name}"
        return (full, None) if full in self.modules else (base, name)

    def targets(self, use: Use) -> set[str]:
        if not self.inside(use.base):
            return set()
        if use.name is None:
            return {use.base}
        if self.through:
            full = f"{use.base}.{use.name}"
            return {full if full in self.modules else use.base}
        return {use.base, self.home(use.base, use.name)[0]}

    def eager(self, name: str) -> tuple[set[str], set[str]]:
        """Modules of the package, and other top-level packages, that a module imports when it is imported."""
        module, own, other = self.modules[name], set(), set()
        for use in module.uses:
            if use.when != "eager":
                continue
            if not self.inside(use.base):
                other.add(use.base.partition(".")[0])
                continue
            own.add(use.base)
            if use.name and f"{use.base}.{use.name}" in self.modules:
                own.add(f"{use.base}.{use.name}")
            ours = set(ancestors(module.folder)) | {module.folder}
            own |= {each for each in ancestors(use.base) if each not in ours}
        return {each for each in own if each in self.modules and each != name}, other

    def closure(self, name: str, without: frozenset = frozenset()) -> tuple[set[str], set[str]]:
        key = (name, without)
        if key not in self.closures:
            seen, other, stack = set(), set(), [name, *ancestors(name)]
            while stack:
                each = stack.pop()
                if each in seen or each in without or each not in self.modules:
                    continue
                seen.add(each)
                own, foreign = self.eager(each)
                other |= foreign
                stack += own
            self.closures[key] = (seen, other)
        return self.closures[key]

    def loops(self, start: set[str], end: str, without: set[str]) -> bool:
        """Whether the eager imports of some modules lead to `end`, not counting packages that hold it."""
        seen, stack = set(without) | set(ancestors(end)), list(start)
        while stack:
            each = stack.pop()
            if each == end:
                return True
            if each in seen:
                continue
            seen.add(each)
            stack += self.eager(each)[0]
        return False


def ancestors(name: str):
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


# ---------------------------------------------------------------- the body of a module, in items


@dataclass
class Item:
    node: ast.stmt
    text: str
    blank: int  # blank lines before it
    names: list[str]
    owner: str
    hard: set[str] = field(default_factory=set)
    soft: set[str] = field(default_factory=set)
    deep: set[str] = field(default_factory=set)

    @property
    def define(self) -> bool:
        return isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def is_import(node) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.If) and is_typing(node))


def is_string(node) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def start_of(node) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


class Parts:
    """A module's source: docstring, head with the imports, items of the body."""

    def __init__(self, module: Module):
        self.module, body = module, module.tree.body
        lines, at = module.lines, 0
        if body and is_string(body[0]):
            self.docstring, body = body[0].value.value, body[1:]
            at = module.tree.body[0].end_lineno
        else:
            self.docstring = ""
        heads = [node for node in body if is_import(node)]
        rest = [node for node in body if not is_import(node)]
        if heads and rest and max(node.end_lineno for node in heads) > min(start_of(node) for node in rest):
            raise Skip(f"{module.name} imports after code")
        self.heads = heads
        self.head_end = max([at, *(node.end_lineno for node in heads)])  # lines of the head: [:head_end]
        self.after_docstring = at
        at, self.items = self.head_end, []
        for node in rest:
            if is_string(node) and self.items:
                last = self.items[-1]
                last.text += "".join(lines[at : node.end_lineno])
            else:
                chunk = lines[at : node.end_lineno]
                if start_of(node) <= at and self.items:
                    raise Skip(f"{module.name} has two statements in a line")
                blank = 0
                while chunk and not chunk[0].strip():
                    chunk, blank = chunk[1:], blank + 1
                self.items.append(Item(node, "".join(chunk), blank, bound_names(node), module.name))
            at = node.end_lineno
        tail = "".join(lines[at:])
        if tail.strip():
            if not self.items:
                raise Skip(f"{module.name} holds comments only")
            self.items[-1].text = self.items[-1].text.rstrip("\n") + "\n" + tail.rstrip() + "\n"
        for item in self.items:
            if not item.text.endswith("\n"):
                item.text += "\n"
            eager_names(item.node, item.hard, item.soft)
            item.deep = {each.id for each in ast.walk(item.node) if isinstance(each, ast.Name)}
        self.comments_in_head = [
            line for line in lines[self.after_docstring : self.head_end] if line.lstrip().startswith("#")
        ]

    def constants(self) -> list[Item]:
        """Statements before the first function or class."""
        found = []
        for item in self.items:
            if item.define:
                break
            found.append(item)
        return found

    def defined(self) -> set[str]:
        return {name for item in self.items for name in item.names}


def bound_names(node) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    names = []
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            names += [
                each.id for each in ast.walk(target) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            ]
        names += [each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr)]
        return names
    if type(node).__name__ == "TypeAlias":
        return [node.name.id]
    for each in blocks(node):
        if isinstance(each, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name.partition(".")[0] for alias in each.names]
        else:
            names += bound_names(each)
    names += [each.id for each in ast.walk(getattr(node, "target", ast.Pass())) if isinstance(each, ast.Name)]
    return names


def eager_names(node, hard: set[str], soft: set[str]) -> None:
    """Names read when the statement is executed (hard), and those of them that are called (soft)."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for each in getattr(node, "decorator_list", []):
            _called(each, soft)
            eager_names(each, hard, soft)
        arguments = node.args
        for each in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            eager_names(each, hard, soft)
        if not isinstance(node, ast.Lambda):
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            for each in [*(one.annotation for one in every if one), node.returns]:
                if each is not None:
                    eager_names(each, hard, soft)
        return
    if isinstance(node, ast.ClassDef):
        for each in node.decorator_list:
            _called(each, soft)
        for each in node.bases:
            _called(each, soft)
    if isinstance(node, ast.Call):
        _called(node.func, soft)
    if isinstance(node, ast.Name):
        hard.add(node.id)
    for child in ast.iter_child_nodes(node):
        eager_names(child, hard, soft)


def _called(node, soft: set[str]) -> None:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        soft.add(node.id)


def ordered(items: list[Item]) -> list[Item]:
    """The same items, each after what it needs when the module is imported; otherwise in the order given."""
    at: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        for name in item.names:
            at[name].append(item)
    done, doing, out = set(), set(), []

    def needed_by_calls(item: Item) -> set[str]:
        """Names that functions called by the item read, and the functions that they call."""
        names, stack = set(), sorted(item.soft)
        while stack:
            name = stack.pop()
            for each in at.get(name, []):
                if each.define and (not isinstance(each.node, ast.ClassDef) or _runs(each, item)):
                    new = each.deep - names
                    names |= new
                    stack += sorted(one for one in new if one in at)
        return names

    def visit(item: Item, must: bool) -> None:
        if id(item) in done:
            return
        if id(item) in doing:
            if must:
                raise Skip(f"{item.names} and what it needs need each other at import")
            return
        doing.add(id(item))
        for name in sorted(item.hard):
            for each in at.get(name, []):
                if each is not item:
                    visit(each, must=each.names != item.names)
        for name in sorted(needed_by_calls(item)):
            for each in at.get(name, []):
                visit(each, must=False)
        doing.discard(id(item))
        done.add(id(item))
        out.append(item)

    def _runs(klass: Item, item: Item) -> bool:
        """Whether using the class at import runs its code: it is called, or does something to its subclasses."""
        if not isinstance(item.node, ast.ClassDef):
            return True
        return "__init_subclass__" in klass.text or "metaclass" in klass.text

    for item in items:
        visit(item, must=True)
    return out


# ---------------------------------------------------------------- edits


def edit(text: str, edits: list[tuple[int, int, str]]) -> str:
    """Replace spans of characters."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


class Offsets:
    """Character offsets of AST positions, which count bytes of UTF-8."""

    def __init__(self, text: str):
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def __call__(self, line: int, column: int) -> int:
        text = self.lines[line - 1]
        if not text.isascii():
            column = len(text.encode()[:column].decode())
        return self.starts[line - 1] + column

    def span(self, node) -> tuple[int, int]:
        return self(node.lineno, node.col_offset), self(node.end_lineno, node.end_col_offset)


def global_reads(text: str, name: str) -> dict[str, bool]:
    """Global names that a module reads or binds anywhere, and names that are local in some function."""
    reads, local = set(), set()

    def walk(table):
        for symbol in table.get_symbols():
            if table.get_type() == "module" or symbol.is_global():
                reads.add(symbol.get_name())
            elif (table.get_type() == "function" and symbol.is_local()) or (
                table.get_type() == "class" and symbol.is_assigned()
            ):
                local.add(symbol.get_name())
        for child in table.get_children():
            walk(child)

    walk(symtable.symtable(text, name, "exec"))
    return {"reads": reads, "local": local}


def renamed(text: str, names: dict[str, str]) -> str:
    """A module's text with global names renamed; the names are local nowhere."""
    if not names:
        return text
    tree, at, edits = ast.parse(text), Offsets(text), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            edits.append((*at.span(node), names[node.id]))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in names:
            start = at(node.lineno, node.col_offset)
            found = re.compile(rf"(?:def|class)\s+({node.name})\b").search(text, start)
            if node in tree.body:
                edits.append((found.start(1), found.end(1), names[node.name]))
        elif isinstance(node, ast.Global):
            raise Skip("renaming a name declared `global`")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
            raise Skip(f"renaming {node.value}, which also stands in a string")
    return edit(text, edits)


def spelled(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def statement(node, aliases: list[ast.alias], base: str | None = None) -> str:
    names = ", ".join(spelled(alias) for alias in aliases)
    if isinstance(node, ast.Import):
        return f"import {names}"
    return f"from {base or '.' * node.level + (node.module or '')} import {names}"


# ---------------------------------------------------------------- one merge


@dataclass
class Merge:
    source: str
    target: str
    text: str
    renames: dict[str, str]
    notes: list[str]

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def merged(package: Package, source: str, target: str, documented: bool = False) -> Merge:
    """The text of the target with the source in it.

    Raises:
        Skip: They cannot be merged.
    """
    m, n = package.modules[source], package.modules[target]
    notes: list[str] = []
    _check_safe(package, m, n)
    parts_m, parts_n = Parts(m), Parts(n)
    renames = _renames(package, parts_m, parts_n)
    if renames:
        # the text alone is renamed here; everything else (tests, `__init__`) by `Rewriter`
        m = Module(m.name, m.path, renamed(m.text, renames), m.package)
        parts_m = Parts(m)
        notes.append("renamed " + ", ".join(f"{a} -> {b}" for a, b in sorted(renames.items())))
    # `from ._n import x` inside functions of M, and `from ._m import x` inside functions of N
    m = _without_inner(m, target, notes)
    n = _without_inner(n, source, notes, renames)
    parts_m, parts_n = Parts(m), Parts(n)
    _check_body(parts_m)
    if parts_m.docstring.strip().count("\n") > 0:
        if not documented:
            raise Skip("an algorithm: its docstring has several lines (--documented merges it)")
        notes.append("its docstring has several lines: a paragraph of the target's")
    head = _head(package, parts_m, parts_n, source, target, notes)
    body = _body(package, parts_m, parts_n)
    text = head.rstrip("\n") + "\n" + body
    ast.parse(text)
    return Merge(source, target, text, renames, notes)


def _check_safe(package: Package, m: Module, n: Module) -> None:
    for module in (m, n):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                raise Skip("import *")
            if isinstance(node, ast.Name) and node.id in ("__doc__", "__all__"):
                raise Skip(f"uses {node.id}")
        if "# ruff: noqa" in module.text or "# fmt: off" in module.text or "# pyright: " in module.text:
            raise Skip("directive for a whole file")
    if "__main__" in m.text and re.search(r"^if __name__", m.text, re.M):
        raise Skip("is run as a script")
    future = [{use.name for use in module.uses if use.base == "__future__"} for module in (m, n)]
    if future[0] != future[1]:
        raise Skip("only one of the two has `from __future__`")
    if package.as_object[m.name]:
        raise Skip("is imported as an object by " + ", ".join(sorted(package.as_object[m.name])))
    kinds = {use.when for use in n.uses if m.name in (use.base, f"{use.base}.{use.name}")}
    if any(use.base == n.name and use.when == "eager" for use in m.uses):
        if not kinds <= {"lazy", "typing"}:
            raise Skip("both import each other")
    both = frozenset({m.name})
    if "eager" not in kinds:  # imported in functions or for types alone: perhaps on purpose
        heavy = package.closure(m.name)
        light = package.closure(n.name, both)
        if foreign := sorted(heavy[1] - light[1] - set(sys.stdlib_module_names)):
            raise Skip(f"is imported late, and would bring {', '.join(foreign[:4])} into {n.name}")
    before = package.loops(package.eager(n.name)[0], n.name, set()) or package.loops(
        package.eager(m.name)[0], m.name, set()
    )
    union = (package.eager(n.name)[0] | package.eager(m.name)[0]) - {m.name, n.name}
    if not before and package.loops(union, n.name, {m.name}):
        raise Skip("a circle of imports would arise")


def _check_body(parts: Parts) -> None:
    for item in parts.items:
        node = item.node
        if isinstance(node, ast.Assign):
            if not all(isinstance(one, ast.Name | ast.Tuple) for one in node.targets):
                raise Skip("assigns to something other than a name")
        elif (
            isinstance(node, ast.AnnAssign)
            or item.define
            or type(node).__name__ == "TypeAlias"
            or (isinstance(node, ast.If | ast.Try) and item.names)
        ):
            pass
        else:
            raise Skip(f"does something when it is imported ({type(node).__name__}, line {node.lineno})")
        for one in getattr(node, "decorator_list", []):
            names: set[str] = set()
            _called(one, names)
            tail = one.func if isinstance(one, ast.Call) else one
            if names & set(ORDERED) or getattr(tail, "attr", None) in ORDERED:
                raise Skip("registers things in an order (decorator)")


def _bindings(package: Package, parts: Parts, other: str) -> dict[str, tuple]:
    """What each global name of a module stands for; imports from `other` are left out."""
    found: dict[str, tuple] = {}
    for use in parts.module.uses:
        if use.depth or use.when == "lazy" or use.base == other:
            continue
        if use.name is None:
            found[use.bound] = ("module", use.base if use.bound != use.base.partition(".")[0] else use.bound)
        elif package.inside(use.base):
            found[use.bound] = package.home(use.base, use.name)
        else:
            found[use.bound] = (use.base, use.name)
    for name in parts.defined():
        found[name] = ("defined", parts.module.name)
    return found


def _renames(package: Package, m: Parts, n: Parts) -> dict[str, str]:
    """New names of private names of M that N uses for something else.

    Raises:
        Skip: Names meet that cannot be renamed.
    """
    for parts, other in ((n, m), (m, n)):
        for use in parts.module.uses:
            if use.base == other.module.name and use.name != use.bound:
                raise Skip(f"is imported under another name ({use.name} as {use.bound})")
    ours, theirs = _bindings(package, m, n.module.name), _bindings(package, n, m.module.name)
    names_m, names_n = global_reads(m.module.text, "m"), global_reads(n.module.text, "n")
    imported = {use.name for use in n.module.uses if use.base == m.module.name}
    back = {use.name for use in m.module.uses if use.base == n.module.name}
    renames = {}
    for name in sorted(ours):
        if name in theirs:
            if ours[name] == theirs[name]:
                continue
            if ours[name][0] != "defined" or not name.startswith("_") or name.startswith("__") or name == "_":
                raise Skip(f"both have {name}")
            if name in imported:
                raise Skip(f"both have {name}, and one imports the other's in a function")
        elif name in BUILTINS and name in names_n["reads"]:
            raise Skip(f"{name} hides a builtin that {n.module.name} uses")
        else:
            continue
        if name in names_m["local"]:
            raise Skip(f"both have {name}, which is also a local name")
        stem = m.module.name.rpartition(".")[2].strip("_")
        new = f"_{stem.upper()}{name}" if name.isupper() else f"_{stem}{name}"
        if re.match(r"_[A-Z][a-z]", name):  # a class
            new = "_" + "".join(each.capitalize() for each in stem.split("_")) + name[1:]
        taken = names_m["reads"] | names_m["local"] | names_n["reads"] | names_n["local"]
        if new in taken:
            raise Skip(f"both have {name}, and {new} is taken")
        renames[name] = new
    for name in sorted(set(theirs) - set(ours)):
        if name in names_m["reads"] and name not in back and name in BUILTINS:
            raise Skip(f"{name} of {n.module.name} hides a builtin")
    for use in [*n.module.uses, *m.module.uses]:  # an inner import that is removed must not have hidden a global name
        if use.depth and use.base in (m.module.name, n.module.name):
            scope = ours if use.base == m.module.name else theirs
            if use.name in scope and scope[use.name][0] != "defined":
                continue
    return renames


def _without_inner(module: Module, other: str, notes: list[str], renames: dict[str, str] | None = None) -> Module:
    """The module without imports from `other` inside functions."""
    nodes = {id(use.node): use.node for use in module.uses if use.base == other and use.depth}
    if not nodes:
        return module
    lines = list(module.lines)
    for parent in ast.walk(module.tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(parent, name, [])
            if isinstance(body, list) and body and any(id(each) in nodes for each in body):
                kept = [each for each in body if id(each) not in nodes and not is_string(each)]
                if not kept:
                    raise Skip("an import in a function is all that a block holds")
    for node in sorted(nodes.values(), key=lambda node: -node.lineno):
        if any(alias.name in (renames or {}) for alias in node.names):
            raise Skip("a renamed name is imported in a function")
        first = node.lineno - 1
        indent = " " * node.col_offset
        if lines[first][: node.col_offset].strip() or not lines[first].startswith(indent):
            raise Skip("two statements in a line")
        while first and lines[first - 1].startswith(indent + "#"):
            first -= 1
            notes.append("dropped with an import in a function: " + lines[first].strip())
        last = node.end_lineno
        if (
            last < len(lines)
            and not lines[last].strip()
            and (first == 0 or lines[first - 1].rstrip().endswith((":", '"""')))
        ):
            last += 1  # the blank line after the imports of a function
        lines[first:last] = []
    return Module(module.name, module.path, "".join(lines), module.package)


def _head(package: Package, m: Parts, n: Parts, source: str, target: str, notes: list[str]) -> str:
    """N's docstring and imports, with M's imports among them."""
    eager: dict[str, tuple] = {}  # names that N imports when it is imported, and what they stand for
    lines = list(n.module.lines[: n.head_end])
    theirs = _bindings(package, n, source)
    for use in n.module.uses:
        if use.when == "eager" and not use.depth and use.base != source:
            eager[use.bound] = theirs.get(use.bound)
    defined = m.defined() | n.defined()
    wanted: list[str] = []
    typing: list[str] = []
    typed = {use.bound for use in n.module.uses if use.when == "typing" and not use.depth and use.base != source}
    now_eager: set[str] = set()
    for node in m.heads:
        if isinstance(node, ast.If):
            if node.orelse or not all(isinstance(each, ast.Import | ast.ImportFrom) for each in node.body):
                raise Skip("more than imports under `if TYPE_CHECKING`")
            continue
        if isinstance(node, ast.ImportFrom) and resolve(m.module.folder, node) in (target, "__future__"):
            continue
        names = [alias for alias in node.names if (alias.asname or alias.name) not in eager or _dotted(node, alias, n)]
        if names:
            line = statement(node, names)
            trailing = _trailing(m.module, node)
            wanted.append(f"{line}{trailing}\n")
            now_eager |= {alias.asname or alias.name.partition(".")[0] for alias in names}
    known = set(eager) | now_eager | defined
    for node in m.heads:
        if isinstance(node, ast.If):
            for each in node.body:
                if isinstance(each, ast.ImportFrom) and resolve(m.module.folder, each) == target:
                    continue
                names = [one for one in each.names if (one.asname or one.name) not in known | typed]
                if names:
                    typing.append(f"    {statement(each, names)}{_trailing(m.module, each)}\n")
    # N's statements, from the last to the first
    block = None
    for node in sorted(n.heads, key=lambda node: -node.lineno):
        if isinstance(node, ast.If):
            block = node
            if node.orelse and typing:
                raise Skip("`else` after `if TYPE_CHECKING`")
            kept = 0
            if typing:
                lines[node.body[-1].end_lineno : node.body[-1].end_lineno] = typing
            for each in sorted(node.body, key=lambda one: -one.lineno):
                if not isinstance(each, ast.Import | ast.ImportFrom):
                    kept += 1
                    continue
                left = each.names
                if isinstance(each, ast.ImportFrom) and resolve(n.module.folder, each) == source:
                    left = []
                left = [one for one in left if (one.asname or one.name) not in now_eager]
                kept += bool(left)
                if len(left) != len(each.names):
                    new = [f"    {statement(each, left)}{_trailing(n.module, each)}\n"] if left else []
                    lines[each.lineno - 1 : each.end_lineno] = new
            if not kept and not typing:
                # the block has become empty: its first line alone is left
                lines[node.lineno - 1 : node.lineno] = []
        elif isinstance(node, ast.ImportFrom) and resolve(n.module.folder, node) == source:
            lines[node.lineno - 1 : node.end_lineno] = []
    text = "".join(lines)
    imports = [node for node in n.heads if not isinstance(node, ast.If)]
    if typing and block is None:
        if "TYPE_CHECKING" not in eager and not any("TYPE_CHECKING" in each for each in wanted):
            wanted.append("from typing import TYPE_CHECKING\n")
        text = text.rstrip("\n") + "\n\nif TYPE_CHECKING:\n" + "".join(typing)
    if "\n" in m.docstring.strip():
        text = _with_paragraph(text, n, m)
    if wanted:
        tree = ast.parse(text)
        at = 0
        if tree.body and is_string(tree.body[0]):
            at = tree.body[0].end_lineno
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                at = max(at, node.end_lineno)
        rows = text.splitlines(keepends=True)
        before = "" if imports and at else "\n"
        rows[at:at] = [before, *wanted]
        text = "".join(rows)
    if m.comments_in_head:
        text = _with_legend(text, m, n, notes)
    return text


def _with_legend(text: str, m: Parts, n: Parts, notes: list[str]) -> str:
    """The head with M's comments between docstring and imports, such as a legend of dimensions, after those of N.

    Raises:
        Skip: A letter stands for one thing in M and for another in N.
    """
    ours = [line.strip() for line in n.comments_in_head]
    new = [line.strip() for line in m.comments_in_head if line.strip() not in ours]
    known = {letter: meaning for line in ours for letter, meaning in _legend(line).items()}
    at = n.after_docstring
    lines = text.splitlines(keepends=True)
    at = next((row for row, line in enumerate(lines) if re.match(r"(import|from|if) ", line) and row >= at), len(lines))
    own = [row for row in range(n.after_docstring, at) if lines[row].startswith("#")]
    for line in new:
        legend = _legend(line)
        if other := [letter for letter in legend if known.get(letter, legend[letter]) != legend[letter]]:
            raise Skip(f"{other[0]} is {known[other[0]]} in one and {legend[other[0]]} in the other")
        if legend and known:
            more = [part for part in line.lstrip("# ").split(", ") if not known.keys() & _legend("# " + part).keys()]
            if not more:
                continue
            joined = lines[own[-1]].rstrip() + ", " + ", ".join(more) if own else ""
            if own and len(joined) <= 120:
                lines[own[-1]] = joined + "\n"
                notes.append("legends united: " + joined)
                continue
            line = "# " + ", ".join(more)
        notes.append("comment from above the imports: " + line)
        if own:
            lines.insert(own[-1] + 1, line + "\n")
            own.append(own[-1] + 1)
        else:
            lines[at:at] = [line + "\n", "\n"]
            own = [at]
    return "".join(lines)


def _legend(line: str) -> dict[str, str]:
    """What letters stand for: `# B batch, H head`; empty for other comments."""
    parts = line.lstrip("# ").split(", ")
    found = [re.fullmatch(r"([A-Za-z][\w+]{0,2}) ([a-z].*)", part) for part in parts]
    return {match[1]: match[2].partition(" (")[0] for match in found if match}


def _with_paragraph(text: str, n: Parts, m: Parts) -> str:
    """The head with M's docstring as the last paragraph of N's."""
    first = ast.parse(text).body[:1]
    if not n.docstring or not first or not is_string(first[0]):
        return text
    rows = text.splitlines(keepends=True)
    old = "".join(rows[: first[0].end_lineno]).rstrip()
    raw = re.match(r'(?s)(?:#[^\n]*\n)*[rR]?"""(.*)"""$', "".join(m.module.lines[: m.after_docstring]).strip())
    if not raw or not old.endswith('"""'):
        return text
    if "\\" in raw.group(1) and not old.startswith("r"):
        old = "r" + old
    return old[:-3].rstrip() + "\n\n" + raw.group(1).strip() + '\n"""\n' + "".join(rows[first[0].end_lineno :])


def _dotted(node, alias: ast.alias, n: Parts) -> bool:
    """Whether `import a.b` binds a name that N has, while the module itself is not imported there."""
    if not isinstance(node, ast.Import) or alias.asname or "." not in alias.name:
        return False
    return not any(use.name is None and use.base == alias.name for use in n.module.uses)


def _trailing(module: Module, node) -> str:
    rest = module.lines[node.end_lineno - 1]
    rest = rest.encode()[node.end_col_offset :].decode().strip()
    return f"  {rest}" if rest.startswith("#") else ""


def _body(package: Package, m: Parts, n: Parts) -> str:
    first_n, first_m = n.constants(), m.constants()
    # M was executed before N: what is declared by a call keeps its order
    early = [item for item in first_m if _declares(package, m, item)]
    cut = max([first_m.index(item) + 1 for item in early], default=0) if early else 0
    rest_n, rest_m = n.items[len(first_n) :], m.items[len(first_m) :]
    # below N's functions; but where a later statement needs M, such as a registry, M stays together above it
    of = {name: item for item in (*n.items, *m.items) for name in item.names}
    at = next(
        (row for row, item in enumerate(rest_n) if not item.define and _needs(item, of, m.module.name)), len(rest_n)
    )
    items = [*first_m[:cut], *first_n, *first_m[cut:], *rest_n[:at], *rest_m, *rest_n[at:]]
    out, last = [], None
    for item in ordered(items):
        if last is None:
            blank = 1
        elif item.define or last.define:
            blank = 2
        elif last.owner == item.owner:
            blank = min(item.blank, 1)
        else:
            blank = 0
        out.append("\n" * blank + item.text)
        last = item
    return "".join(out)


def _needs(item: Item, of: dict[str, Item], owner: str) -> bool:
    """Whether a statement reads a function or class of a module, or calls a function that does."""
    near = [of[name] for name in item.hard if name in of]
    near += [of[name] for each in item.soft if each in of for name in of[each].deep if name in of]
    return any(each.owner == owner and each.define for each in near)


def _declares(package: Package, parts: Parts, item: Item) -> bool:
    """Whether the statement calls something of the package, which may keep a list of what was made."""
    own = {use.bound for use in parts.module.uses if package.inside(use.base)} | parts.defined()
    return bool(item.soft & own)


# ---------------------------------------------------------------- everything else that names a module


class Rewriter:
    """Texts of the repository in which names of modules are replaced."""

    def __init__(self, repository: Path, root: Path):
        self.repository, self.root, self.texts, self.changed = repository, root, {}, set()
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=repository, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            path = repository / name
            if path.suffix in TEXTS or path.name in ("Makefile", "run"):
                if path.is_file() and not path.is_symlink() and path.stat().st_size < 3_000_000:
                    try:
                        self.texts[path] = path.read_text(encoding="utf-8")
                    except UnicodeDecodeError:
                        continue
        self.notes: list[str] = []

    def apply(self, package: Package, merge: Merge) -> None:
        old, new = merge.source, merge.target
        stem, stem_new = old.rpartition(".")[2], new.rpartition(".")[2]
        folder = old.rpartition(".")[0].split(".")
        path, path_new = ("/".join([*folder[1:], each]) + ".py" for each in (stem, stem_new))
        only = sum(name.rpartition(".")[2] == stem for name in package.modules) == 1
        dotted = re.compile(rf"(?<![\w.]){re.escape(old)}(?!\w)(\.\w+)?")
        placed = re.compile(rf"(?<![\w/])((?:src/)?(?:{package.top}/)?){re.escape(path)}(?!\w)")

        def name(match):
            rest = match.group(1) or ""
            return new + ("." + merge.renames.get(rest[1:], rest[1:]) if rest else "")

        for file in sorted(self.texts):
            text = self.texts[file]
            if stem not in text or file == package.modules[old].path:
                continue
            out = text
            if file.suffix == ".py" and file != package.modules[new].path:
                out = self._imports(package, merge, file, out)
            out = dotted.sub(name, out)
            had = len(re.findall(rf'"{re.escape(path_new)}"\s*:', out))
            out = placed.sub(lambda match: match.group(1) + path_new, out)
            if had and len(re.findall(rf'"{re.escape(path_new)}"\s*:', out)) > had:
                self.notes.append(
                    f'{file.relative_to(self.repository)}: two entries for "{path_new}"; unite them by hand'
                )
            bare = re.compile(rf"(?<![\w/]){re.escape(stem)}\.py(?!\w)")
            if file.suffix == ".md" and only and bare.search(out):
                out = bare.sub(f"{stem_new}.py", out)
            elif bare.search(out) and self.root not in file.parents:
                self.notes.append(f"{file.relative_to(self.repository)}: mentions {stem}.py (merged into {path_new})")
            if out != text:
                self.texts[file] = out
                self.changed.add(file)

    def _imports(self, package: Package, merge: Merge, file: Path, text: str) -> str:
        """Python's import statements, also those inside functions."""
        try:
            tree = ast.parse(text)
        except SyntaxError:
            return text
        folder = ""
        if self.root in file.parents:
            parts = [package.top, *file.relative_to(self.root).with_suffix("").parts]
            folder = ".".join(parts[:-1])
        at, edits, objects = Offsets(text), [], {}
        stem, stem_new = merge.source.rpartition(".")[2], merge.target.rpartition(".")[2]
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or (node.level and not folder):
                continue
            base = resolve(folder, node)
            start, end = at.span(node)
            code = text[start:end]
            if base == merge.source:
                head = re.match(rf"(from\s+\S*?){re.escape(stem)}(\s+import)", code)
                code = head.group(1) + stem_new + head.group(2) + code[head.end() :]
                names = code[code.index("import") + 6 :]
                for alias in node.names:
                    if alias.name in merge.renames:
                        name, kept = merge.renames[alias.name], alias.asname or alias.name
                        old = rf"\b{alias.name}\s+as\s+{alias.asname}\b" if alias.asname else rf"\b{alias.name}\b"
                        names = re.sub(old, f"{name} as {kept}", names)
                edits.append((start, end, code[: code.index("import") + 6] + names))
            elif base == merge.source.rpartition(".")[0] and any(alias.name == stem for alias in node.names):
                alias = next(each for each in node.names if each.name == stem)
                bound = alias.asname or alias.name
                new = stem_new
                if alias.asname:
                    new = f"{stem_new} as {alias.asname}"
                elif any(each.name == stem_new and not each.asname for each in node.names) or re.search(
                    rf"\b{stem_new}\b", text
                ):
                    new = f"{stem_new} as {stem}"
                else:
                    objects[stem] = stem_new
                old = rf"\b{stem}\s+as\s+{alias.asname}\b" if alias.asname else rf"\b{stem}\b"
                at_names = code.index("import") + 6
                edits.append((start, end, code[:at_names] + re.sub(old, new, code[at_names:])))
                if merge.renames:
                    for each in ast.walk(tree):
                        if (
                            isinstance(each, ast.Attribute)
                            and getattr(each.value, "id", None) == bound
                            and each.attr in merge.renames
                        ):
                            _, stop = at.span(each)
                            edits.append((stop - len(each.attr), stop, merge.renames[each.attr]))
        if objects:
            for node in ast.walk(tree):
                if isinstance(node, ast.Name) and node.id in objects:
                    edits.append((*at.span(node), objects[node.id]))
        return edit(text, edits)


# ---------------------------------------------------------------- the plan


class Merger:
    def __init__(self, options):
        self.options = options
        self.package = Package(options.root, options.through)
        self.repository = Path(
            subprocess.run(
                ["git", "rev-parse", "--show-toplevel"], cwd=options.root, capture_output=True, text=True, check=True
            ).stdout.strip()
        )
        self.rewriter = Rewriter(self.repository, options.root)
        self.done: list[Merge] = []
        self.skipped: dict[str, str] = {}
        self.forbidden = set(options.forbidden)
        self.documented = options.documented or options.plan is not None
        self.strings = self._strings()
        self.registries = self.collectors(self.candidates())
        self.tried: dict = {}
        self.removed: list[Path] = []

    def _strings(self) -> set[str]:
        """Modules that the package itself names in strings: they are started or found by name."""
        found = set()
        for module in self.package.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
                    found |= (
                        set(re.findall(rf"{self.package.top}(?:\.\w+)+", node.value))
                        if " " not in node.value.strip()
                        else set()
                    )
                    if re.fullmatch(r"_?\w+\.py", node.value):
                        found.add(f"{module.folder}.{node.value[:-3]}")
        return {each for each in found if each in self.package.modules}

    def candidates(self) -> list[tuple[str, str]]:
        found, package = [], self.package
        for name, module in sorted(package.modules.items()):
            if (
                module.package
                or name.count(".") < 1
                or not any(part.startswith("_") and part != "__main__" for part in name.split("."))
            ):
                continue
            importers = {each for each in package.importers[name] if each != name}
            if len(importers) != 1:
                continue
            (target,) = importers
            if self.options.under and not any(module.path.is_relative_to(each) for each in self.options.under):
                continue
            if target.rpartition(".")[0] != module.folder:
                self.skipped[name] = "its importer is in another folder"
                continue
            if package.modules[target].package or target.endswith("__main__"):
                continue
            found.append((name, target))
        return found

    def collectors(self, candidates: list[tuple[str, str]]) -> set[str]:
        """Modules that collect many others, such as a registry: to merge some of these would tell nothing to a reader.

        Asked once, before the first merge; a module is no collector where all of the others would fit into it.
        """
        of = defaultdict(list)
        for source, target in candidates:
            of[target].append(source)
        length = {name: module.text.count("\n") for name, module in self.package.modules.items()}
        return {
            target
            for target, sources in of.items()
            if len(sources) >= self.options.collector
            and length[target] + sum(length[each] for each in sources) > self.options.limit
        }

    def refused(self, source: str, target: str) -> str | None:
        package, options = self.package, self.options
        if options.plan is None and target in self.registries:
            return f"{target} collects many modules of a kind"
        if source in self.forbidden or any(fnmatch.fnmatch(source, each) for each in options.keep):
            return "kept on request"
        if source in self.strings:
            return "the package names it in a string (started or found by name)"
        m, n = (package.modules[each].text.count("\n") for each in (source, target))
        if options.plan is None and m > options.max and n > options.short:
            return f"longer than {options.max} lines"
        return None

    def step(self) -> bool:
        """Do the merge with the shortest result; False: there is none."""
        best = None
        for source, target in self.candidates():
            if reason := self.refused(source, target):
                self.skipped[source] = reason
                continue
            key = (source, target, hash_of(self.package, source, target))
            if key not in self.tried:
                try:
                    self.tried[key] = merged(self.package, source, target, self.documented)
                except Skip as skip:
                    self.tried[key] = str(skip)
            merge = self.tried[key]
            if isinstance(merge, str):
                self.skipped[source] = merge
            elif merge.lines > self.options.limit:
                self.skipped[source] = f"the result would be longer than {self.options.limit} lines"
            elif best is None or (merge.lines, merge.source) < (best.lines, best.source):
                best = merge
        if best is None:
            return False
        # what depends on other modules is asked again
        self.apply(merged(self.package, best.source, best.target, self.documented))
        return True

    def apply(self, merge: Merge) -> None:
        package = self.package
        self.rewriter.apply(package, merge)
        source, target = package.modules[merge.source], package.modules[merge.target]
        self.rewriter.texts.pop(source.path, None)
        self.rewriter.texts[target.path] = self.rewriter.texts[target.path] and merge.text
        self.rewriter.changed.add(target.path)
        del package.modules[merge.source]
        for name, module in list(package.modules.items()):
            text = self.rewriter.texts.get(module.path, module.text)
            if text != module.text:
                package.modules[name] = Module(name, module.path, text, module.package)
        package.index()
        self.skipped.pop(merge.source, None)
        self.removed.append(source.path)
        self.done.append(merge)

    def run(self) -> None:
        if self.options.plan is None:
            while self.step():
                pass
            return
        for source, target in self.options.plan:
            if source not in self.package.modules or target not in self.package.modules:
                self.skipped[source] = f"{source} or {target} does not exist"
                continue
            importers = self.package.importers[source]
            try:
                if importers - {target}:
                    raise Skip("has more importers: " + ", ".join(sorted(importers - {target})))
                if reason := self.refused(source, target):
                    raise Skip(reason)
                self.apply(merged(self.package, source, target, self.documented))
            except Skip as skip:
                self.skipped[source] = str(skip)

    def write(self) -> list[Path]:
        for path in self.removed:
            path.unlink()
        for path in sorted(self.rewriter.changed):
            if path in self.rewriter.texts:
                path.write_text(self.rewriter.texts[path], encoding="utf-8")
        return [path for path in sorted(self.rewriter.changed) if path in self.rewriter.texts]


def hash_of(package: Package, source: str, target: str):
    return (package.modules[source].text, package.modules[target].text)


def read_plan(path: Path) -> tuple[list[tuple[str, str]], list[str]]:
    merges, forbidden = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("!"):
            forbidden.append(line[1:].strip())
        elif line:
            source, _, target = line.partition("->")
            merges.append((source.strip(), target.strip()))
    return merges, forbidden


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("src/infoflow"))
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--under", type=Path, action="append", default=[])
    parser.add_argument("--limit", type=int, default=350, help="most lines of a result")
    parser.add_argument("--max", type=int, default=200, help="longest module that is merged into one that is not short")
    parser.add_argument("--short", type=int, default=80, help="N is short up to so many lines")
    parser.add_argument("--collector", type=int, default=5, help="modules that are N's alone from which on N collects")
    parser.add_argument("--through", action="store_true", help="users through `__init__` are no importers")
    parser.add_argument("--documented", action="store_true", help="also modules whose docstring has several lines")
    parser.add_argument("--keep", action="append", default=[], help="pattern of modules that stay")
    parser.add_argument("--ruff", default="")
    parser.add_argument("--no-ruff", action="store_true")
    parser.add_argument("--report", type=Path, help="file for notes and reasons")
    options = parser.parse_args()
    options.root = options.root.resolve()
    options.under = [each.resolve() for each in options.under]
    options.forbidden = []
    if options.plan:
        options.plan, options.forbidden = read_plan(options.plan)
        if not options.plan:
            options.plan = None  # prohibitions alone
    merger = Merger(options)
    before = Counter(
        files=len(merger.package.modules), lines=sum(one.text.count("\n") for one in merger.package.modules.values())
    )
    merger.run()
    after = Counter(
        files=len(merger.package.modules), lines=sum(one.text.count("\n") for one in merger.package.modules.values())
    )
    report = [
        f"files {before['files']} -> {after['files']}; lines {before['lines']} -> {after['lines']} (before ruff)",
        "",
    ]
    for merge in merger.done:
        report.append(f"{merge.source} -> {merge.target}  # {merge.lines} lines")
        report += [f"    {note}" for note in merge.notes]
    report += ["", "Skipped:"]
    report += [f"{name}: {reason}" for name, reason in sorted(merger.skipped.items()) if name in merger.package.modules]
    report += ["", "To look at:", *sorted(set(merger.rewriter.notes))]
    if options.report:
        options.report.write_text("\n".join(report) + "\n", encoding="utf-8")
    for merge in merger.done:
        print(f"{merge.source} -> {merge.target}  # {merge.lines} lines")
    print(f"# {report[0]}", file=sys.stderr)
    if options.dry:
        return
    paths = merger.write()
    ruff = options.ruff or next(
        (
            str(each)
            for each in (merger.repository / ".venv/bin/ruff", Path(sys.executable).with_name("ruff"))
            if each.exists()
        ),
        "ruff",
    )
    python = [str(path) for path in paths if path.suffix == ".py"]
    if python and not options.no_ruff:
        targets = [
            str(merger.package.modules[name].path)
            for name in sorted({merge.target for merge in merger.done} & set(merger.package.modules))
        ]
        run = lambda *words: subprocess.run([ruff, *words], cwd=merger.repository, stdout=subprocess.DEVNULL)  # noqa: E731
        run("check", "-q", "--fix", "--extend-select", "I", *python)
        run("check", "-q", "--fix", "--extend-select", "F401,I", *targets)
        run("format", "-q", *python)
    for note in sorted(set(merger.rewriter.notes)):
        print("# " + note, file=sys.stderr)


if __name__ == "__main__":
    main()
