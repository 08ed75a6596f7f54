"""How the tests check argument types and tensor shapes: every function, method and dataclass of a package, on import.

beartype checks types, an int accepted where a float is asked for. Where an annotation has a shape, jaxtyping's scope
for axis names is put around it; elsewhere that scope would cost more than the check. (`jaxtyped` itself binds each
call's arguments for its messages and checks them twice: measuring a tiny model took a tenth longer with it.)
Functions inside functions are left alone: they would be compiled again at each call. Shapes are checked in a
function's first calls in each test, which `begin` counts anew: a study calls some functions a hundred thousand times.
"""

import ast
import inspect
import marshal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import cache_from_source, decode_source, source_hash
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning

_CALLS = 6  # of a function in one test, whose shapes are checked
_AT_EACH_OPERATION = {"__torch_function__"}  # left alone too: a check would take longer than the operation
_OURS = Path(__file__).read_bytes()
_check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=TypeError))
_check_shapes = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))


_test = 0


def begin() -> None:
    """A test begins: calls are counted anew."""
    global _test
    _test += 1


def install(package: str) -> None:
    """Check what is called in modules of `package` that are imported from now on."""
    assert package not in sys.modules, f"{package} is imported already"
    sys.meta_path.insert(0, _Finder(package))


def checked(target: Any) -> Any:
    """`target`, a function or class, with checks of its arguments and results."""
    if inspect.isclass(target):
        if is_dataclass(target):
            target.__init__ = checked(target.__init__)
        return target
    hints = _hints(target)
    return _checked_when_called(target) if hints is None else _checked(target, hints)


def _hints(function: Callable) -> dict[str, Any] | None:
    """Annotations; None: they name what is not defined, or not yet."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:
        return None


def _checked(function: Callable, hints: dict[str, Any]) -> Callable:
    if not _have_shapes(hints.values()):
        return _check(function)
    if inspect.isgeneratorfunction(function):  # its body runs later, in the scope of others
        return jaxtyping.jaxtyped(function, typechecker=_check)
    return _with_own_axes(function)


def _checked_when_called(function: Callable) -> Callable:
    """Annotations may name what is defined below. Names for type checkers alone are left out, by jaxtyping, slowly."""
    found: list[Callable] = []

    @wraps(function)
    def checked_call(*args: Any, **kwargs: Any) -> Any:
        if not found:
            with warnings.catch_warnings():  # of hints of other packages, which a test may be the first to reach
                warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
                hints = _hints(function)
                unnamed = hints is None
                found.append(jaxtyping.jaxtyped(function, typechecker=_check) if unnamed else _checked(function, hints))
        return found[0](*args, **kwargs)

    return checked_call


def _with_own_axes(function: Callable) -> Callable:
    check = _check_shapes(function)
    test = calls = 0

    @wraps(function)
    def checked_call(*args: Any, **kwargs: Any) -> Any:
        nonlocal test, calls
        if test != _test:
            test, calls = _test, 0
        if calls == _CALLS:
            return function(*args, **kwargs)
        calls += 1
        with jaxtyping.jaxtyped("context"):
            return check(*args, **kwargs)

    return checked_call


def _have_shapes(hints: Iterable[Any]) -> bool:
    return any(inspect.isclass(part) and issubclass(part, jaxtyping.AbstractArray) for part in _parts(hints))


def _parts(hints: Any) -> Iterator[Any]:
    for hint in hints:
        yield hint
        yield from _parts(hint if isinstance(hint, list) else get_args(hint))  # a list: arguments of a Callable


class _Finder(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.split(".")[0] != self.package:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # type: ignore[override]
        tree = ast.fix_missing_locations(_Decorated().visit(ast.parse(decode_source(data))))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def get_code(self, fullname: str) -> Any:
        """Compiled once for all runs of the tests, in files that programs without these checks do not read."""
        source = self.get_data(self.path)
        stamp, kept = source_hash(_OURS + source), cache_from_source(self.path, optimization="checked")
        with suppress(OSError, EOFError, ValueError):
            data = self.get_data(kept)
            if data.startswith(stamp):
                return marshal.loads(data[len(stamp) :])
        code = self.source_to_code(source, self.path)
        if not sys.dont_write_bytecode:
            self.set_data(kept, stamp + marshal.dumps(code))
        return code


class _Decorated(ast.NodeTransformer):
    def visit_Module(self, node: ast.Module) -> ast.Module:
        self.generic_visit(node)
        first = 1 if ast.get_docstring(node, clean=False) is not None else 0
        node.body.insert(first, ast.Import(names=[ast.alias(__name__, "_typecheck")]))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if node.name not in _AT_EACH_OPERATION:
            node.decorator_list.append(_decorator(node))  # the innermost: outer ones may hide annotations
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.generic_visit(node)
        node.decorator_list.insert(0, _decorator(node))  # the outermost: after `@dataclass`
        return node


def _decorator(node: ast.stmt) -> ast.expr:
    name = ast.Name("_typecheck", ctx=ast.Load())
    return ast.copy_location(ast.Attribute(name, "checked", ctx=ast.Load()), node)
