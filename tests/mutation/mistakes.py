"""Small mistakes that a source file allows: another comparison, sign, constant or condition, a statement left out."""

import ast
import difflib
import re
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}  # fmt: skip
OPERATIONS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"), ast.Pow: ("**", "*"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
}  # fmt: skip
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mistake:
    """One change of a source file.

    Parameters
    ----------
    path
        Of the file, from the root of the checkout.
    line
        Where it is, from 1.
    function
        The innermost function that it is in, with its classes; empty outside of all.
    start, end
        The bytes of the file that it replaces.
    after
        What it replaces them by.
    """

    path: str
    line: int
    function: str
    start: int
    end: int
    after: str

    def apply(self, source: bytes) -> bytes:
        """The file with the mistake."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """What it changes, line by line."""
        before, after = (text.decode().splitlines() for text in (source, self.apply(source)))
        lines = difflib.unified_diff(before, after, lineterm="", n=0)
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def mistakes(path: str, source: bytes) -> list[Mistake]:
    """All mistakes that a file allows, in their order.

    Examples
    --------
    >>> [m.apply(b"x = a < 1").decode() for m in mistakes("f.py", b"x = a < 1")]
    ['x = a <= 1', 'x = a < 2']
    """
    found = {mistake for mistake in _Finder(path, source).found if mistake.apply(source) != source}
    return sorted(found, key=lambda each: (each.start, each.end, each.after))


def is_valid(mistake: Mistake, source: bytes) -> bool:
    """Whether the file can still be compiled."""
    try:
        compile(mistake.apply(source), mistake.path, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Finder(ast.NodeVisitor):
    """Walks a file; what only people read (texts, annotations, messages of errors) is left out."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.lines = [0]
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.names: list[str] = []
        self.functions = 0
        self.found: list[Mistake] = []
        self.visit(ast.parse(source))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def _replace(self, start: int, end: int, after: str) -> None:
        line = self.source[:start].count(b"\n") + 1
        function = ".".join(self.names) if self.functions else ""
        self.found.append(Mistake(self.path, line, function, start, end, after))

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _between(self, one: ast.AST, other: ast.AST, before: str, after: str) -> None:
        """Another operator between two operands."""
        start, end = self._span(one)[1], self._span(other)[0]
        pattern = r"(?<![\w<>=!*/])" + r"\s+".join(map(re.escape, before.split())) + r"(?![\w<>=*/])"
        match = re.search(pattern.encode(), self.source[start:end])
        if match:
            self._replace(start + match.start(), start + match.end(), after)

    def _negate(self, node: ast.expr) -> None:
        self._replace(*self._span(node), f"(not ({self._text(node)}))")

    # Where nothing is changed

    def _named(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        is_function = isinstance(node, FUNCTIONS)
        self.names.append(node.name)
        self.functions += is_function
        for child in node.body[1:] if ast.get_docstring(node) is not None else node.body:
            self.visit(child)
        self.names.pop()
        self.functions -= is_function
        if is_function:
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Not what is written for people alone."""
        if node.name != "__repr__":
            self._named(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Not protocols, which have no behaviour."""
        if not any("Protocol" in ast.unparse(base) for base in node.bases):
            self._named(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Its value, not its annotation."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Not a module's list of names, nor the name that it gives a type."""
        value = node.value
        names = any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
        union = isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr)
        if self.functions or not (names or union or isinstance(value, ast.Subscript)):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text for people."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """The error is left out; its words stay."""
        self._replace(*self._span(node), "pass")

    # What is changed

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call for what it does, left out; not one that logs, nor a text."""
        if isinstance(node.value, ast.Constant):
            return
        logs = isinstance(node.value, ast.Call) and re.match(
            r"_?(log|logger)\.", ast.unparse(node.value.func), re.IGNORECASE
        )
        if logs:
            return
        if not isinstance(node.value, ast.Yield | ast.YieldFrom):
            self._replace(*self._span(node), "pass")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Another comparison."""
        operands = [node.left, *node.comparators]
        for left, right, operator in zip(operands, operands[1:], node.ops, strict=False):
            self._between(left, right, *COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Another operation."""
        words = any(isinstance(part, ast.JoinedStr) or _is_text(part) for part in (node.left, node.right))
        types = isinstance(node.op, ast.BitOr) and not self.functions
        if type(node.op) in OPERATIONS and not words and not types:
            self._between(node.left, node.right, *OPERATIONS[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Another operation, or none."""
        if type(node.op) in OPERATIONS and not _is_text(node.value) and not isinstance(node.value, ast.JoinedStr):
            before, after = OPERATIONS[type(node.op)]
            self._between(node.target, node.value, f"{before}=", f"{after}=")
        self._replace(*self._span(node), "pass")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """No sign, no negation."""
        if isinstance(node.op, ast.USub | ast.Not):
            self._replace(*self._span(node), f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """And for or, or for and."""
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, before, after)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Not that two sequences are as long as each other, which nothing but another mistake could change."""
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Another number."""
        value = node.value
        if isinstance(value, bool):
            self._replace(*self._span(node), str(not value))
        elif isinstance(value, int):
            self._replace(*self._span(node), str(value + 1))
        elif isinstance(value, float):
            self._replace(*self._span(node), repr(value * 2.0 if value else 1.0))

    def visit_If(self, node: ast.If) -> None:
        """The other way round; not what is for type checkers."""
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """The other way round."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """As it is, but for what it asks."""
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """All others."""
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """Nothing is returned."""
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._replace(*self._span(node.value), "None")
            self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        """The end of the loop."""
        self._replace(*self._span(node), "break")

    def visit_Break(self, node: ast.Break) -> None:
        """Going on."""
        self._replace(*self._span(node), "continue")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
