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
    "_internal": set(),
    "privacy": set(),
    "task": {"privacy"},
    "stream": {"privacy", "task"},
    "inference": {"privacy", "task", "stream"},
    "protocols": {"privacy", "task", "stream", "inference"},
    "results": {"privacy", "task", "stream", "inference", "protocols"},
    "learners": {"privacy", "task", "stream", "inference", "protocols", "results"},
    "shuffler": {"privacy", "task", "stream"},
    "planning": {"privacy", "task", "inference", "protocols", "results"},
    "producers": {"privacy", "task", "stream", "protocols"},
    "populations": {
        "privacy",
        "task",
        "stream",
        "inference",
        "protocols",
        "results",
        "planning",
        "producers",
        "shuffler",
    },
    "monitoring": {"privacy", "task", "stream", "inference", "protocols", "results"},
    "gateway": {"task", "stream", "protocols", "monitoring"},
    "audit": {"privacy", "task", "protocols", "producers"},
    "demo": {"task", "stream", "inference", "results", "populations"},
    "dossier": {"privacy", "task", "stream", "protocols", "results", "producers", "planning", "audit"},
    "cli": {
        "privacy",
        "task",
        "stream",
        "inference",
        "protocols",
        "results",
        "planning",
        "producers",
        "populations",
        "shuffler",
        "monitoring",
        "gateway",
        "audit",
        "demo",
        "dossier",
    },
}
NOT_INSTALLED = {"reproductions", "tools", "tests", "benchmarks", "deploy"}
EVERYBODY = {"errors", "_internal", "__version__"}


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
    packages = ("murk.protocols.gradients", "murk.protocols.scores", "murk.protocols")
    assert set(packages) <= PACKAGES
    graph = {
        "murk.protocols.scores.a": ["murk.protocols.gradients.b", "murk.protocols.c"],
        "murk.protocols.gradients.d": ["murk.protocols.scores.e"],
        "murk.protocols.c": ["murk.protocols.scores.a"],
        "murk.protocols.gradients.b": [],
        "murk.protocols.scores.e": [],
    }
    assert folder_pairs(graph) == [("murk.protocols.gradients", "murk.protocols.scores")]


def test_no_two_folders_import_each_other():
    """Imports within functions and imports of types count."""
    assert folder_pairs(module_graph()) == []


PROTOCOLS = ("gradients", "scores", "examples", "moments", "summaries", "univariate")


def imported_protocols(graph, part):
    """Modules of other protocols, or their packages, that a protocol's folder imports."""
    others = tuple(f"murk.protocols.{name}." for name in PROTOCOLS if name != part)
    inside = [names for module, names in graph.items() if f"{module}.".startswith(f"murk.protocols.{part}.")]
    assert inside
    return {name for names in inside for name in names if f"{name}.".startswith(others)}


def test_imports_of_protocols_are_found():
    graph = {"murk.protocols.scores.a": ["murk.protocols.moments", "murk.inference.b"]}
    assert imported_protocols(graph, "scores") == {"murk.protocols.moments"}


@pytest.mark.parametrize("part", PROTOCOLS)
def test_a_protocol_imports_no_other(part):
    assert imported_protocols(module_graph(), part) == set()


def modules_named_in_strings():
    """Files of each room, and the rooms that they import by a name in a string."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts = node.value.split(".")
                if parts[0] == "murk" and len(parts) > 1 and parts[1] and (PACKAGE / parts[1]).is_dir():
                    yield path.relative_to(PACKAGE), parts[1]


def test_names_in_strings_point_one_way_too():
    """A registry that imports by a string would hide an arrow from all other tests."""
    files = list(modules_named_in_strings())
    assert len({path for path, _ in files}) > 5
    # Public names are exported from above, and codes of errors belong to every room.
    exported = {"__init__.py", "error_codes.py"}
    for path, used in files:
        part = path.parts[0]
        if part not in exported and path.name != "__init__.py":
            assert used in ALLOWED[part] | EVERYBODY | {part}, f"{path} names murk.{used}"


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
        ("murk.protocols.device", ("river", "pandas", "scipy", "rich")),
        ("murk.protocols.gradients.device", ("river", "pandas", "scipy", "rich")),
        ("murk.protocols.examples.device", ("river", "pandas", "scipy", "rich")),
        ("murk.protocols.moments.device", ("river", "pandas", "scipy", "rich")),
        ("murk.protocols.summaries.device", ("river", "pandas", "scipy", "rich")),
        ("murk.cli", ("river", "pandas", "scipy", "rich", "numpy", "pydantic")),
    ],
)
def test_light_parts_load_nothing_heavy(module, heavy):
    code = f"import {module}, sys; print(*(m for m in {heavy!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_public_names_are_there():
    """Others build on these names."""
    import murk
    import murk.learners
    import murk.monitoring
    import murk.populations
    import murk.privacy
    import murk.producers
    import murk.stream
    import murk.task

    names = {
        murk.privacy: "PureDP ApproxDP GaussianDP ZeroConcentratedDP GaussianMechanism LaplaceMechanism "
        "L2BallMechanism RandomizedResponse SecureNoise SimulatedNoise Accountant",
        murk.learners: "Encoder LDPSGDRegressor LDPSGDClassifier IWPSGDClassifier IWPSGDRegressor PublicGLMClassifier "
        "PublicGLMRegressor GaussMixRegressor GaussMixClassifier "
        "ScoreClassifier ScoreRegressor",
        murk.stream: "GradientRelease ExampleRelease MomentRelease SketchRelease open_log Worker",
        murk.producers: "AsyncProducer Ledger Producer OrganisationProducer",
        murk.monitoring: "Monitor",
        murk.populations: "FileSource open_records",
        murk.task: "Model Task",
        murk: "Result Task fit run",
    }
    for module, wanted in names.items():
        for name in wanted.split():
            assert hasattr(module, name)
            assert name in module.__all__


# Only commands use these, and they do not fork; an `AsyncProducer` looks at its process before its lock.
OTHER_LOCKS = {
    "gateway/app.py",
    "gateway/group_commit.py",
    "monitoring/web/server.py",
    "producers/async_producer.py",
    "stream/worker/pool.py",
}


def test_locks_outlive_a_fork():
    """A lock that another thread holds at a fork stays held in the child, unless it is a `ForkSafeLock`."""
    locks = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in locks)
        or (isinstance(node, ast.alias) and node.name in locks)
    }
    assert found == OTHER_LOCKS | {"_internal/locks.py"}
