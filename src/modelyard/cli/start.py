"""Where the `yard` program begins: Ctrl-C is one line from the first moment on.

Loading the command line takes a tenth of a second, in which Python would answer an interrupt with
a traceback. This module imports nothing that takes time.
"""

from __future__ import annotations

import sys

#: 128 + SIGINT, as `modelyard.cli.main` has it
EXIT_INTERRUPTED = 130


def main() -> None:
    """The `yard` program; never returns."""
    try:
        from modelyard.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(EXIT_INTERRUPTED)
