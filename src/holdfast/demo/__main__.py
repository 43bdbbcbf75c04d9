"""The command `python -m holdfast.demo`: its options, its closing words, its exit code."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """0 when the sums are right, 1 when not, 2 for a wrong call, 130 when interrupted."""
    try:
        import rich  # noqa: F401  only to say clearly that it is missing
    except ModuleNotFoundError:
        print("The demo draws with rich: pip install 'holdfast[demo]'", file=sys.stderr)
        return 2
    from holdfast.demo.command import run

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end as cleanly
    return run(sys.argv[1:])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nStopped.")
        sys.exit(130)
