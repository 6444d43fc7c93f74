"""``make size``: how much code there is, by package. Thermometers, not goals of their own.

One JSON object a line: lines of Python (blank lines and comments included), modules, classes, functions, the share of
code lines that are comments, and class names that are defined more than once in the product.
"""

import ast
import io
import json
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PREDECESSORS = "pyconfd.predecessors"


@dataclass
class Size:
    """The sums over some modules."""

    modules: int = 0
    lines: int = 0
    code: int = 0
    comments: int = 0
    functions: int = 0
    classes: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Count one module."""
        self.modules += 1
        self.lines += text.count("\n")
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        ignored |= {tokenize.ENDMARKER}
        self.comments += sum(token.type == tokenize.COMMENT for token in tokens)
        self.code += len({token.start[0] for token in tokens if token.type not in ignored})
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions += 1

    def row(self, name: str) -> dict[str, object]:
        """Return the sums as one row."""
        return {
            "package": name,
            "lines": self.lines,
            "modules": self.modules,
            "classes": self.classes.total(),
            "functions": self.functions,
            "comment_percent": round(100 * self.comments / max(1, self.code), 1),
            "names_used_twice": sum(count > 1 for count in self.classes.values()),
        }


def packages(root: Path) -> Iterator[tuple[str, list[Path]]]:
    """Return each package directly below ``root`` with its modules; those of ``root`` itself come first."""
    yield root.name, sorted(root.glob("*.py"))
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name != "__pycache__"):
        if modules := sorted(folder.rglob("*.py")):
            yield f"{root.name}.{folder.name}", modules


def main() -> int:
    """Print a row for each package of the product, its sum with and without predecessors, and the sum of the tests."""
    whole, rest, tests = Size(), Size(), Size()
    for name, modules in packages(ROOT / "pyconfd"):
        size = Size()
        for module in modules:
            text = module.read_text(encoding="utf-8")
            size.add(text)
            whole.add(text)
            if name != PREDECESSORS:
                rest.add(text)
        print(json.dumps(size.row(name)))
    for module in sorted((ROOT / "tests").rglob("*.py")):
        tests.add(module.read_text(encoding="utf-8"))
    print(json.dumps(whole.row("pyconfd, all of it")))
    print(json.dumps(rest.row(f"pyconfd without {PREDECESSORS}")))
    print(json.dumps({key: value for key, value in tests.row("tests").items() if key != "names_used_twice"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
