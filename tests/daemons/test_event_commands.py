"""The commands that export, import and archive runs."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import holdfast
from holdfast import Event
from tests.daemons.processes import PATIENCE_SECS, until

COMMANDS = ("export-events", "import-events", "archive-run")


def _run(*arguments: object, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-W", "error", "-m", "holdfast", *map(str, arguments)]
    return subprocess.run(
        words, input=data, capture_output=True, check=False, timeout=PATIENCE_SECS
    )


def _fill(url: str, events: int = 3) -> None:
    with holdfast.open(url) as store:
        for run_id in ("a", "b"):
            store.events.append_events([Event(run_id, "Noted", f"{n}") for n in range(events)])
        store.events.append_event(Event("a", "RunCompleted", "end"))


def test_help_tells_what_the_commands_do() -> None:
    for name in COMMANDS:
        shown = _run(name, "--help")
        assert shown.returncode == 0
        words = (b"URL", b"--namespace", b"--json", b"sqlite:", b"postgresql:", b"redis:", b"nats:")
        assert [word for word in words if word not in shown.stdout] == []
        assert name.encode() in _run("--help").stdout


def test_every_option_is_in_the_documentation() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/events-export.md"
    told = page.read_text(encoding="utf-8")
    for name in COMMANDS:
        options = set(re.findall(rb"(?<!\w)--[a-z-]+", _run(name, "--help").stdout)) - {b"--help"}
        assert len(options) >= 3
        assert [option for option in options if option.decode() not in told] == []
        assert f"python -m holdfast {name} " in told


def test_runs_go_from_one_store_to_another(any_url: str, tmp_path: Path) -> None:
    there = f"sqlite:///{tmp_path}/there.db"
    _fill(any_url)
    file = tmp_path / "runs.jsonl.gz"
    done = _run("export-events", any_url, file)
    assert (done.returncode, done.stdout) == (0, b"runs 2, events 7\n")
    done = _run("import-events", there, file, "--json")
    assert json.loads(done.stdout) == {"events": 7, "known": 0}
    assert _run("import-events", there, file).stdout == b"events 0, known 7\n"
    piped = _run("export-events", any_url, "-", "--run", "b")
    assert piped.stderr == b"runs 1, events 3\n"
    assert piped.stdout.count(b"\n") == 5
    done = _run("import-events", there, "-", "--namespace", "other", data=piped.stdout)
    assert (done.stdout, done.stderr) == (b"events 3, known 0\n", b"")
    with holdfast.open(there) as store:
        assert store.events.list_runs() == ["a", "b"]
        assert store.namespace("other").events.list_runs() == ["b"]


def test_a_run_is_archived_and_restored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    _fill(url)
    folder = tmp_path / "archive"
    refused = _run("archive-run", url, folder, "b")
    assert refused.returncode == 1
    assert b"force" in refused.stderr
    done = _run("archive-run", url, folder, "a", "b", "--force", "--json")
    files = json.loads(done.stdout)["files"]
    assert sorted(files) == sorted(map(str, folder.iterdir()))
    with holdfast.open(url) as store:
        assert store.events.list_runs() == []
    for file in files:
        assert _run("import-events", url, file).returncode == 0
    with holdfast.open(url) as store:
        assert store.events.list_runs() == ["a", "b"]


def test_what_was_archived_before_an_error_is_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    _fill(url)
    folder = tmp_path / "archive"
    refused = _run("archive-run", url, folder, "a", "b", "--json")
    assert (refused.returncode, refused.stdout) == (1, b"")
    (file,) = folder.iterdir()
    log, error = refused.stderr.decode().splitlines()
    assert log.endswith(f"run 'a' is archived: {file}")
    assert error.startswith("holdfast archive-run: run 'b': ")
    assert error.endswith(f"(archived before that: {file})")


def test_several_files_are_imported_and_an_error_names_its_own(tmp_path: Path) -> None:
    source, target = (f"sqlite:///{tmp_path}/{name}.db" for name in ("x", "y"))
    _fill(source)
    a, b = (tmp_path / f"{run_id}.jsonl.gz" for run_id in ("a", "b"))
    for run_id, file in (("a", a), ("b", b)):
        assert _run("export-events", source, file, "--run", run_id).returncode == 0
    assert _run("import-events", target, a, b).stdout == b"events 7, known 0\n"
    assert _run("import-events", target, a, b, a).stdout == b"events 0, known 11\n"
    refused = _run("import-events", target, "-", "-")
    assert (refused.returncode, b"standard input" in refused.stderr) == (2, True)
    b.write_bytes(b.read_bytes()[:-9])
    refused = _run("import-events", target, a, b)
    assert refused.returncode == 1
    told = f"line 6: truncated in the middle of gzipped data (file '{b}')"
    assert refused.stderr.decode() == f"holdfast import-events: {told}\n"


def test_a_bad_event_in_a_file_is_no_wrong_call(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    _fill(url)
    file = _run("export-events", url, "-").stdout.replace(b'"run_seq":2,', b'"run_seq":0,')
    done = _run("import-events", f"sqlite:///{tmp_path}/y.db", "-", data=file)
    assert done.returncode == 1
    told = b"holdfast import-events: line 3: run_seq: wanted a number from 1 on, found 0"
    assert done.stderr == told + b" (standard input)\n"


def test_an_interrupt_is_one_line_and_130(tmp_path: Path) -> None:
    source, target = (f"sqlite:///{tmp_path}/{name}.db" for name in ("x", "y"))
    with holdfast.open(source) as store:
        for start in range(0, 1500, 500):
            numbers = range(start, start + 500)
            store.events.append_events([Event("a", "Noted", f"{n}", "x" * 1000) for n in numbers])
    file = _run("export-events", source, "-").stdout
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "import-events", target, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(file[:-100])
        process.stdin.flush()
        with holdfast.open(target) as store:
            until(lambda: store.events.list_runs() == ["a"])  # it is at work, and waits for more
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_SECS)
    assert (process.returncode, output) == (130, b"")
    assert errors == b"holdfast import-events: interrupted\n"


def test_errors_are_one_line_that_names_the_line_of_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    _fill(url)
    for arguments, data, code, word in (
        (("import-events", url, "-"), b"", 1, b"line 1"),
        (("import-events", url, tmp_path / "never"), b"", 1, b"never"),
        (("export-events", url, tmp_path / "f", "--run", "never"), b"", 1, b"'never'"),
        (("export-events", url, tmp_path), b"", 2, b"folder"),
        (("export-events", url, tmp_path / "no" / "f"), b"", 1, b"no'"),
        (("archive-run", url, tmp_path), b"", 2, b"ID"),
    ):
        done = _run(*arguments, data=data)
        assert done.returncode == code, done
        assert word in done.stderr
        assert b"Traceback" not in done.stderr
    assert not (tmp_path / "f").exists()
    assert not (tmp_path / "no").exists()


def test_a_store_that_is_missing_is_made_by_an_import_alone(tmp_path: Path) -> None:
    there, missing = tmp_path / "there.db", tmp_path / "missing.db"
    _fill(f"sqlite:///{there}")
    assert _run("export-events", f"sqlite:///{there}", tmp_path / "runs").returncode == 0
    url = f"sqlite:///{missing}"
    for words in (("export-events", url, tmp_path / "out"), ("archive-run", url, tmp_path, "a")):
        done = _run(*words)
        assert (done.returncode, done.stdout) == (1, b"")
        told = f"holdfast {words[0]}: SQLite file '{missing}': does not exist\n"
        assert done.stderr.decode() == told
        assert not missing.exists()
        assert not (tmp_path / "out").exists()
    assert _run("import-events", url, tmp_path / "runs").stdout == b"events 7, known 0\n"


def test_a_bar_is_shown_on_a_terminal_and_goes_at_the_end(tmp_path: Path) -> None:
    source, target = (f"sqlite:///{tmp_path}/{name}.db" for name in ("x", "y"))
    with holdfast.open(source) as store:
        for start in range(0, 10_000, 1000):
            events = [Event("a", "Noted", f"{n}") for n in range(start, start + 1000)]
            store.events.append_events(events)
        store.events.export_runs(tmp_path / "runs.jsonl")
    terminal, end = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast", "import-events", target, tmp_path / "runs.jsonl"],
            stdout=subprocess.PIPE,
            stderr=end,
        ) as process:
            os.close(end)
            shown = b""
            try:
                while block := os.read(terminal, 65536):
                    shown += block
            except OSError:  # the other side is closed
                pass
            assert process.stdout is not None
            assert process.stdout.read() == b"events 10000, known 0\n"
    finally:
        os.close(terminal)
    assert b"% imported " in shown
    assert shown.endswith(b"\r\x1b[K")
