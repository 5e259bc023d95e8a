"""Imports point one way, and a device starts without River."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import murk

PACKAGE = Path(murk.__file__).parent
# What each part may import of Murk, beside itself and what all may.
ALLOWED = {
    "privacy": set(),
    "stream": {"privacy"},
    "learners": {"privacy", "stream"},
    "shuffler": {"privacy", "stream"},
    "producers": {"privacy", "stream", "learners", "planning", "shuffler"},
    "monitoring": {"privacy", "stream", "learners"},
    "gateway": {"privacy", "stream", "learners", "monitoring"},
    "audit": {"privacy", "stream", "learners", "producers"},
    "demo": {"privacy", "stream", "learners", "producers"},
    "dossier": {"privacy", "stream", "learners", "producers"},
    "planning": {"privacy", "stream", "learners"},
    "cli": {
        "privacy",
        "stream",
        "learners",
        "producers",
        "monitoring",
        "audit",
        "demo",
        "dossier",
        "planning",
        "gateway",
        "shuffler",
    },
}
NOT_INSTALLED = {"reproductions", "tools", "tests", "benchmarks", "deploy"}
EVERYBODY = {
    "errors",
    "_arrays",
    "_environment",
    "_files",
    "_jit",
    "_lazy",
    "_lines",
    "_memory",
    "_printable",
    "_scratch",
    "_sqlite",
    "_turns",
    "__version__",
}


@cache
def statements(path):
    """The import statements of a file."""
    return tuple(
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
    )


def imports(path):
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ([f"murk.{alias.name}" for alias in node.names] if node.module == "murk" else [node.module])


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_imports_point_one_way(part):
    files = list((PACKAGE / part).rglob("*.py"))
    assert files
    for path in files:
        for name in imports(path):
            assert name.split(".")[0] not in NOT_INSTALLED, f"{path.relative_to(PACKAGE)} imports {name}"
            if name.split(".")[0] == "murk" and name != "murk":
                used = name.split(".")[1]
                assert used in ALLOWED[part] | EVERYBODY | {part}, f"{path.relative_to(PACKAGE)} imports {name}"


def imported_modules(known, path):
    """Modules of Murk that a file imports, wherever in the file and for types, too."""
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from (name for name in [inner if inner in known else node.module] if name in known)


def circles(graph):
    """Sets of modules that import each other, by Tarjan's algorithm."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            place = stack.index(module)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for module in graph:
        if module not in index:
            visit(module)
    return found


def module_graph():
    files = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: sorted(set(imported_modules(files, path)) - {name}) for name, path in sorted(files.items())}


def test_circles_are_found():
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c"]]


def test_no_imports_run_in_a_circle():
    """Of all imports: also those inside of functions, and those for types alone."""
    assert circles(module_graph()) == []


def folder_pairs(graph):
    """Pairs of folders that import each other, a folder and its own sub-folder apart."""
    folders = {module: module if module in PACKAGES else module.rpartition(".")[0] for module in graph}
    arrows = {(folders[module], folders[other]) for module, others in graph.items() for other in others}
    return sorted(
        (one, other)
        for one, other in arrows
        if one < other and (other, one) in arrows and not other.startswith(f"{one}.")
    )


PACKAGES = {".".join(path.parent.relative_to(PACKAGE.parent).parts) for path in PACKAGE.rglob("__init__.py")}


def test_pairs_of_folders_are_found():
    packages = ("murk.learners.gradients", "murk.learners.scores", "murk.learners")
    assert set(packages) <= PACKAGES
    graph = {
        "murk.learners.scores.a": ["murk.learners.gradients.b", "murk.learners.c"],
        "murk.learners.gradients.d": ["murk.learners.scores.e"],
        "murk.learners.c": ["murk.learners.scores.a"],
        "murk.learners.gradients.b": [],
        "murk.learners.scores.e": [],
    }
    assert folder_pairs(graph) == [("murk.learners.gradients", "murk.learners.scores")]


def test_no_two_folders_import_each_other():
    """Imports within functions and imports of types count."""
    assert folder_pairs(module_graph()) == []


PROTOCOLS = ("gradients", "scores", "examples", "moments", "sketches")


def imported_protocols(graph, part):
    """Modules of other protocols, or their packages, that a folder of the learners imports."""
    others = tuple(f"murk.learners.{name}." for name in PROTOCOLS if name != part)
    own = [names for module, names in graph.items() if f"{module}.".startswith(f"murk.learners.{part}.")]
    assert own
    return {name for names in own for name in names if f"{name}.".startswith(others)}


def test_imports_of_protocols_are_found():
    graph = {"murk.learners.scores.a": ["murk.learners.moments", "murk.learners.core.b"]}
    assert imported_protocols(graph, "scores") == {"murk.learners.moments"}


@pytest.mark.parametrize("part", [*PROTOCOLS, "core", "estimates", "results"])
def test_learners_import_no_other_protocol(part):
    assert imported_protocols(module_graph(), part) == set()


def test_every_part_has_a_place_in_the_order():
    parts = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert parts == set(ALLOWED)


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("murk.privacy", ("river", "pandas", "scipy", "numba", "rich")),
        ("murk.stream", ("river", "pandas", "scipy", "rich")),
        ("murk.producers", ("river", "pandas", "scipy", "rich")),
        ("murk.monitoring", ("river", "pandas", "scipy", "rich", "prometheus_client")),
        ("murk.learners.problem", ("river", "pandas", "scipy", "rich")),
        ("murk.learners.gradients.problem", ("river", "pandas", "scipy", "rich")),
        ("murk.learners.examples.problem", ("river", "pandas", "scipy", "rich")),
        ("murk.learners.moments.problem", ("river", "pandas", "scipy", "rich")),
        ("murk.learners.sketches.problem", ("river", "pandas", "scipy", "rich")),
        ("murk.cli", ("river", "pandas", "scipy", "rich", "numpy", "pydantic")),
    ],
)
def test_light_parts_load_nothing_heavy(module, heavy):
    code = f"import {module}, sys; print(*(m for m in {heavy!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_public_names_are_there():
    """Others build on these names."""
    import murk.learners
    import murk.monitoring
    import murk.privacy
    import murk.producers
    import murk.stream

    names = {
        murk.privacy: "PureDP ApproxDP GaussianDP ZeroConcentratedDP GaussianMechanism LaplaceMechanism "
        "L2BallMechanism RandomizedResponse SecureNoise SimulatedNoise Accountant",
        murk.learners: "LDPSGDRegressor LDPSGDClassifier IWPSGDClassifier IWPSGDRegressor PublicGLMClassifier "
        "PublicGLMRegressor GaussMixRegressor GaussMixClassifier "
        "ScoreClassifier ScoreRegressor",
        murk.stream: "Task GradientRelease ExampleRelease MomentRelease SketchRelease open_log Worker",
        murk.producers: "Encoder Ledger Producer SketchProducer",
        murk.monitoring: "Monitor",
    }
    for module, wanted in names.items():
        for name in wanted.split():
            assert hasattr(module, name)
            assert name in module.__all__


# Only commands use these, and they do not fork.
OTHER_LOCKS = {"gateway/appending.py", "monitoring/web/server.py", "stream/worker/pool.py"}


def test_locks_outlive_a_fork():
    """A lock that another thread holds at a fork stays held in the child for ever, unless it is one of `Turns`."""
    locks = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in locks)
        or (isinstance(node, ast.alias) and node.name in locks)
    }
    assert found == OTHER_LOCKS | {"_turns.py"}
