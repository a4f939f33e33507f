"""The entry point: `stoploss` and `python -m stoploss`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; never show a traceback for what a user can mend."""
    from stoploss.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
