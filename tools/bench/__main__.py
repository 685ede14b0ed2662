"""Runs the benchmarks: `python -P tools/bench [--list] [NAME…]`; without names, all of them one after the other.

A benchmark is a script in this folder. It prints a table of medians and of ratios against something measured in the
same run, says what it skips and why, and exits 0 unless it could not run at all.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent


def main(arguments: list[str]) -> int:
    """Run what is named and return the exit code."""
    scripts = {path.stem: path for path in sorted(FOLDER.glob("*.py")) if not path.name.startswith("_")}
    if arguments == ["--list"]:
        for name, path in scripts.items():
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            print(f"{name:14} {docstring.splitlines()[0] if docstring else ''}")
        return 0
    unknown = [name for name in arguments if name not in scripts]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(scripts)}", file=sys.stderr)
        return 2
    failed = 0
    for name in arguments or scripts:
        print(f"\n== {name}", flush=True)
        failed |= subprocess.run([sys.executable, "-P", str(scripts[name])], cwd=ROOT, check=False).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
