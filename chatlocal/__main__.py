"""The command line: `chatlocal` or `python -m chatlocal`. Each command is a file of chatlocal.commands.

Exit codes: 0 all is well, 1 a ChatLocalError (its message is on stderr), 2 wrong usage, 3 all was done and something in
it failed (`extract`), 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from chatlocal import __version__
from chatlocal.commands import chat, doctor, extract
from chatlocal.engine.errors import ChatLocalError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; argparse itself exits with 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="chatlocal", description="Open chat models in your own process.")
    parser.add_argument("--version", action="version", version=f"chatlocal {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    chat.add_to(commands)
    doctor.add_to(commands)
    extract.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        return options.run(options) or 0
    except ChatLocalError as error:
        print(f"chatlocal: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
