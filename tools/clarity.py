"""Draw sentences at random for a reader who knows the field and not Murk: ``python -m tools.clarity [--seed S]``.

Docstrings of the package, messages of errors and of the command line, and paragraphs of the documentation. The reader
marks each that is not clear at first reading; at least 95% should be.
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SIZES = {"docstrings": 60, "messages": 30, "paragraphs": 30}
RAISED = re.compile(r"Error$|Exception$")


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of every module, class and function that has one."""
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                yield f"{path}: {getattr(node, 'name', 'module')}", text


def messages() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of every error raised with a sentence, its values as ``{...}``."""
    for path, tree in modules():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and node.args and RAISED.search(ast.unparse(node.func))):
                continue
            text = spoken(node.args[0])
            if text and len(text.split()) >= 5:
                yield f"{path}:{node.lineno}", text


def paragraphs() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of every paragraph of the documentation that is neither code, table, heading nor formula."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        prose = re.sub(r"^(```|~~~).*?^\1", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        for block in re.split(r"\n\s*\n", prose):
            text = block.strip()
            if len(text.split()) >= 12 and text[0] not in "|#<:!" and not block.startswith("    "):
                yield str(path.relative_to(ROOT)), text


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Yield (path, syntax tree) of every module of the package."""
    for path in sorted((ROOT / "murk").rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text())


def spoken(node: ast.expr) -> str:
    """Return the words of a string, with ``{...}`` for values; "" if the expression is another one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            "{" + ast.unparse(part.value) + "}" if isinstance(part, ast.FormattedValue) else spoken(part)
            for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return spoken(node.left) + spoken(node.right)
    return ""


def main() -> None:
    """Print a sample."""
    parser = argparse.ArgumentParser(prog="python -m tools.clarity", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for kind, read in (("docstrings", docstrings), ("messages", messages), ("paragraphs", paragraphs)):
        drawn = random.Random(options.seed).sample(sorted(set(read())), SIZES[kind])
        for number, (place, text) in enumerate(drawn, 1):
            print(f"\n[{kind[0].upper()}{number}] {place}\n{text}")  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
