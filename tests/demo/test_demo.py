"""The demo as its viewer meets it: on a terminal, in a log, interrupted, and with wrong sums."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.demo.orders import COUNTER, change
from holdfast.testing.valkey import ValkeyServer

DEMO = [sys.executable, "-m", "holdfast.demo"]
SHORT = [*DEMO, "--seconds", "1", "--workers", "3"]
PATIENCE_SECS = 60


def environment(folder: Path) -> dict[str, str]:
    """Ours, without what would change how the demo draws; `folder` is for temporary files."""
    drawing = {"NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"}
    kept = {name: value for name, value in os.environ.items() if name not in drawing}
    return kept | {"TMPDIR": str(folder), "TERM": "xterm", "PYTHONUNBUFFERED": "1"}


class Terminal:
    """The demo on a terminal of 80 x 30."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self.shown = ""

    def read_until(self, text: str) -> None:
        """Read until the text has been shown; without text, until the demo has ended."""
        deadline = time.monotonic() + PATIENCE_SECS
        while not text or text not in self.shown:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown}"
            try:
                more = os.read(self._master, 65536)
            except OSError:  # Linux says so when the other side is closed, others read nothing
                more = b""
            if not more:
                assert not text, f"the demo ended without {text!r}: {self.shown}"
                break
            self.shown += more.decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files, which the demo must leave empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


def test_on_a_terminal_a_live_table_shows_the_kill_and_right_sums(folder: Path) -> None:
    # Long enough that on a busy machine too the others sell when one is killed.
    terminal = Terminal([*DEMO, "--seconds", "3", "--workers", "3"], environment(folder))
    try:
        terminal.read_until("")
        assert terminal.process.wait() == 0, terminal.shown
    finally:
        terminal.close()
    frames = terminal.shown.split("3 processes sell from one stock")[1:]
    assert len(frames) >= 3
    assert any("killed" in frame and "selling" in frame for frame in frames)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frames[-1]).replace("\r\n", "\n")
    table, closing = text.split("The sums are right.")
    assert "done before, known by its op_id; orders: done now" in table
    assert "docs/quickstart.md" in closing
    assert max(map(len, text.splitlines())) <= 80


def test_in_a_log_it_prints_plain_lines_and_right_sums(folder: Path) -> None:
    ended = subprocess.run(
        SHORT,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    assert "\x1b" not in ended.stdout
    assert "was killed (SIGKILL) in the middle of order" in ended.stdout
    assert "done before, known by its op_id; orders: done now" in ended.stdout
    sums = re.search(
        r"(\d+) orders issued = (\d+) counted = (\d+) sold = (\d+) gone",
        ended.stdout.replace(",", ""),
    )
    assert sums is not None, ended.stdout
    assert len(set(sums.groups())) == 1
    assert int(sums[1]) >= 3, "each worker finishes at least one order"


def test_an_order_counted_twice_by_someone_else_makes_it_fail(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "demo.db"
    command = [*SHORT, "--path", str(file)]
    with subprocess.Popen(
        command, env=environment(folder), stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "was killed (SIGKILL)" in line:
                break
        double_count(file)
        shown = demo.stdout.read()
    assert demo.returncode == 1, shown
    assert "The sums are WRONG." in shown
    assert re.search(r"(\d+) orders were issued, but (\d+) are counted", shown)
    assert "The sums are right." not in shown


def double_count(file: Path) -> None:
    """Count an order that nobody took, in the namespace of the run that the file holds."""
    connection = apsw.Connection(str(file))
    ((namespace,),) = connection.execute("SELECT DISTINCT namespace FROM holdfast_cell_versions")
    connection.close()
    with holdfast.open(f"sqlite:///{file}", str(namespace)) as store:
        change(store.cells, COUNTER, lambda count: count + 1, op_id=uuid.uuid4())


def test_ctrl_c_ends_it_without_tracebacks_or_stray_processes(folder: Path) -> None:
    terminal = Terminal([*DEMO, "--seconds", "30"], environment(folder))
    try:
        terminal.read_until("selling")
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until("")
        assert terminal.process.wait() == 130, terminal.shown
    finally:
        terminal.close()
    assert "Stopped." in terminal.shown
    assert "Traceback" not in terminal.shown
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l"), "no cursor"
    pids = {int(pid) for pid in re.findall(r"^ +[1-4] +(\d+) ", terminal.shown, re.MULTILINE)}
    assert len(pids) == 4, terminal.shown
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_without_rich_it_says_what_to_install() -> None:
    hide = "import sys, runpy; sys.modules['rich'] = None; "
    ended = subprocess.run(
        [sys.executable, "-c", hide + "runpy.run_module('holdfast.demo', run_name='__main__')"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
        check=False,
    )
    assert ended.returncode == 2
    assert "pip install 'holdfast[demo]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_on_an_engine_without_histories_it_says_so_at_once() -> None:
    with ValkeyServer() as server:
        ended = subprocess.run(
            [sys.executable, "-m", "holdfast.demo", "--url", server.fresh_url()],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECS,
            check=False,
        )
    assert ended.returncode == 1
    assert "The demo failed: redis lacks the ability 'cells: getv" in ended.stdout
    assert "sell from one stock" not in ended.stdout
