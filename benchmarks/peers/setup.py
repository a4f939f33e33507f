"""Build the peers' own virtual environment, so that their packages never meet ours.

Run `python benchmarks/peers/setup.py` once; it needs a package index. The environment lies in
`.venv-peers/` at the top of the checkout and ignores itself in git. promtool comes from the
system: `apt-get install prometheus` on Debian.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-peers"
PYTHON = ENVIRONMENT / "bin" / "python"
REQUIREMENT = "c7n==0.9.53"


def main() -> int:
    """Create the environment where it is missing and install the pinned peer; return pip's status."""
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    (ENVIRONMENT / ".gitignore").write_text("*\n", encoding="utf-8")
    return subprocess.run(
        [str(PYTHON), "-m", "pip", "install", "--quiet", REQUIREMENT], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
