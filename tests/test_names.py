"""Names of local variables say which quantity they hold."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "murk"
VAGUE = {"found", "one", "known", "own", "shown", "place", "places", "thing", "things", "what", "that", "it", "held"}
# Largest share of assignments to vague names.
MOST = 0.012


def assigned(tree):
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def test_few_assignments_are_to_vague_names():
    names = [name for path in PACKAGE.rglob("*.py") for name in assigned(ast.parse(path.read_text(encoding="utf-8")))]
    assert len(names) > 10_000
    vague = sum(name in VAGUE for name in names) / len(names)
    assert vague <= MOST, f"{vague:.2%} of assignments are to vague names"


def test_assignments_of_all_kinds_are_counted():
    tree = ast.parse("found = 1\nfor one in x: pass\n(own, y) = 1, 2\n[place for place in z]\nknown: int = found\n")
    assert sorted(set(assigned(tree)) & VAGUE) == ["found", "known", "one", "own", "place"]
