"""The command `python -m holdfast.demo`: its options, its closing words, its exit code."""

from __future__ import annotations

import signal
import sys
import time


def main() -> int:
    """0 when the sums are right, 1 when not, 2 for a wrong call, 130 when interrupted."""
    began_at = time.monotonic()  # importing what draws takes long on a busy machine
    try:
        import rich  # noqa: F401  only to say clearly that it is missing
    except ModuleNotFoundError:
        print("The demo draws with rich: pip install 'holdfast[demo]'", file=sys.stderr)
        return 2
    from holdfast.demo.command import run

    for name in ("SIGTERM", "SIGHUP"):  # end as cleanly as by Ctrl-C; Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    return run(sys.argv[1:], began_at=began_at)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nStopped.")
        sys.exit(130)
