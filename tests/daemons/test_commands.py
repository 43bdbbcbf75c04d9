"""The commands' help, what they refuse, and how they fail."""

from __future__ import annotations

import json
import re
import signal
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.daemons import folder_name
from holdfast.testing.ports import ReservedPort
from tests.daemons.processes import archived, command, ended, pass_time, stuck, totals, until


def _run(*arguments: object) -> tuple[int, str, str]:
    return ended(command(*arguments))


def test_help_names_the_commands_and_their_options() -> None:
    code, output, _ = _run("--help")
    assert code == 0
    assert "sweep" in output
    assert "archive" in output
    for name, options in {
        "sweep": [
            "--namespace",
            "--all-namespaces",
            "--root",
            "--interval",
            "--threshold",
            "--keep",
            "--once",
            "--json",
        ],
        "project": [
            "--all-namespaces",
            "--projection",
            "--shards",
            "--lease",
            "--every",
            "--resync",
            "--once",
            "--json",
        ],
        "archive": [
            "FOLDER",
            "--all-namespaces",
            "--group",
            "--subject",
            "--batch",
            "--once",
            "--json",
        ],
    }.items():
        code, output, _ = _run(name, "--help")
        assert code == 0
        assert [option for option in (*options, "URL", "SIGTERM") if option not in output] == []


def test_every_option_is_in_the_documentation() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/daemons.md"
    told = page.read_text(encoding="utf-8")
    for name in ("sweep", "archive", "project"):
        _, output, _ = _run(name, "--help")
        options = set(re.findall(r"(?<!\w)--[a-z-]+", output)) - {"--help"}
        assert len(options) > 5
        assert [option for option in options if f"`{option}" not in told] == []
        assert f"python -m holdfast {name} " in told


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["sweeep"],
        ["sweep"],
        ["sweep", "nothing://"],
        ["sweep", "sqlite:///{}/x.db", "--interval", "0"],
        ["sweep", "sqlite:///{}/x.db", "--interval", "nan"],
        ["sweep", "sqlite:///{}/x.db", "--threshold", "soon"],
        ["sweep", "sqlite:///{}/x.db", "--namespace", ""],
        ["sweep", "sqlite:///{}/x.db", "--namespace", "a", "--all-namespaces"],
        ["archive", "sqlite:///{}/x.db"],
        ["archive", "sqlite:///{}/x.db", "{}/a", "--batch", "0"],
        ["archive", "sqlite:///{}/x.db", "{}/a", "--subject", "a b"],
        ["archive", "sqlite:///{}/x.db", "{}/a", "--group", "a:b"],
        ["project"],
        ["project", "sqlite:///{}/x.db", "--shards", "0"],
        ["project", "sqlite:///{}/x.db", "--lease", "0"],
        ["project", "sqlite:///{}/x.db", "--resync", "SOMETIMES"],
        ["project", "sqlite:///{}/x.db", "--projection", "tests.projector.views"],
        ["project", "sqlite:///{}/x.db", "--projection", "no.such.module:cost"],
        ["project", "sqlite:///{}/x.db", "--projection", "tests.projector.views:event"],
    ],
)
def test_wrong_call_is_refused_with_2(arguments: list[str], tmp_path: Path) -> None:
    holdfast.open(f"sqlite:///{tmp_path}/x.db").close()
    code, output, errors = _run(*(word.replace("{}", str(tmp_path)) for word in arguments))
    assert (code, output) == (2, "")
    assert errors
    assert "Traceback" not in errors


def test_what_resync_can_be_is_told(tmp_path: Path) -> None:
    _, _, errors = _run("project", f"sqlite:///{tmp_path}/x.db", "--resync", "SOME")
    assert errors.endswith("argument --resync: wanted FULL or FROM_SNAPSHOT, found SOME\n")


@pytest.mark.parametrize("arguments", [["sweep", "URL"], ["archive", "URL", "{}/a", "--once"]])
def test_unreachable_server_is_one_line_and_1(arguments: list[str], tmp_path: Path) -> None:
    port = ReservedPort()
    url = f"postgresql://postgres@127.0.0.1:{port.number}/x"
    words = [word.replace("{}", str(tmp_path)).replace("URL", url) for word in arguments]
    code, output, errors = _run(*words)
    port.release()
    assert (code, output) == (1, "")
    assert errors.startswith(f"holdfast {arguments[0]}: PostgreSQL")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("words", [("sweep", "URL"), ("archive", "URL", "a"), ("project", "URL")])
@pytest.mark.parametrize("more", [(), ("--once",), ("--all-namespaces",)])
def test_a_missing_sqlite_file_is_one_line_and_1(
    words: tuple[str, ...], more: tuple[str, ...], tmp_path: Path
) -> None:
    missing = tmp_path / "missing.db"
    url = f"sqlite:///{missing}"
    done = _run(*(word.replace("URL", url) for word in words), *more)
    assert done == (1, "", f"holdfast {words[0]}: SQLite file '{missing}': does not exist\n")
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made_is_one_line_and_1(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with holdfast.open(url) as store:
        store.transport.publish("gbe.tasks.mail.terminal", 1)
    code, output, errors = _run("archive", url, "/proc/nothing/archive", "--once")
    assert (code, output) == (1, "")
    assert errors.count("\n") == 1


def test_namespace_subjects_and_group_are_those_asked_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with holdfast.open(url, "acme") as store:
        store.transport.publish("orders.paid", 1)
        store.transport.publish("orders.sent.late", 2)
        store.transport.publish("gbe.tasks.mail.terminal", 3)
        code, output, errors = _run(
            "archive", url, tmp_path / "a", "--namespace", "acme", "--group", "books",
            "--subject", "orders.paid", "--subject", "orders.sent.>", "--once", "--json",
        )  # fmt: skip
        assert code == 0, errors
        assert json.loads(output)["messages"] == 2
        assert store.transport.list_groups() == ["books"]
    found = [message.payload for message in holdfast.read_archive(tmp_path / "a")]
    assert found == [1, 2]
    assert _run("archive", url, tmp_path / "b", "--once")[1].startswith("messages 0, ")


NAMES = ["acme", "a/b", "..", "über", "default"]


def test_all_namespaces_are_archived_each_in_its_folder(any_url: str, tmp_path: Path) -> None:
    url = any_url
    with holdfast.open(url) as store:
        for name in NAMES:
            view = store.namespace(name)
            view.tasks.create("mail", name.replace(".", "-"))
            view.tasks.cancel("mail", name.replace(".", "-"))
        folder = tmp_path / "archive"
        done = totals(command("archive", url, folder, "--all-namespaces", "--once", "--json"))
        assert (done["messages"], done["waiting"]) == (5, 0)
        folders = {name: folder / folder_name(name) for name in NAMES}
        assert sorted(folder.iterdir()) == sorted(folders.values())
        for name, each in folders.items():
            (message,) = holdfast.read_archive(each)
            assert message.payload["task_id"] == name.replace(".", "-")
        process = command("archive", url, folder, "--all-namespaces", "--json")
        later = store.namespace("later")
        later.tasks.create("mail", "1")
        later.tasks.cancel("mail", "1")
        until(lambda: len(archived(folder / "later")) == 1)
        process.send_signal(signal.SIGTERM)
        assert totals(process)["messages"] == 1


def test_all_namespaces_are_swept(any_url: str) -> None:
    url = any_url
    with holdfast.open(url) as store:
        for name in NAMES:
            stuck(store.namespace(name), 2)
        before = store.now()
        pass_time(url, 31)
        until(
            lambda: store.now() - before > timedelta(seconds=31)
        )  # a move takes its time to be heard
        store.transport.publish("a", "young")
        once = ("sweep", url, "--all-namespaces", "--once", "--json")
        assert totals(command(*once)) == {"retried": 10, "failed": 0, "queued": 0, "purged": 0}
        purged = {"retried": 0, "failed": 0, "queued": 0, "purged": 10}  # each was queued once
        assert totals(command(*once, "--keep", "30")) == purged
        process = command("sweep", url, "--all-namespaces", "--interval", "0.1", "--json")
        later = store.namespace("later")
        stuck(later, 1)
        pass_time(url, 31)
        until(lambda: _state(later) == "pending")
        process.send_signal(signal.SIGINT)
        assert totals(process)["retried"] == 1


def _state(store: holdfast.Store) -> str:
    task = store.tasks.get("mail", "0")
    assert task is not None
    return task.state
