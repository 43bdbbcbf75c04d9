"""What all tests share."""

import signal

pytest_plugins = ["holdfast.testing.plugin"]

# A job in the background of a script ignores Ctrl-C and hands that down to whatever it starts;
# what tests start hears it, as it would in a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
