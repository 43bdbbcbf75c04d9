"""The commands' help, what they refuse, and how they fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.ports import ReservedPort
from tests.daemons.processes import command, ended


def _run(*arguments: object) -> tuple[int, str, str]:
    return ended(command(*arguments))


def test_help_names_the_commands_and_their_options() -> None:
    code, output, _ = _run("--help")
    assert code == 0
    assert "sweep" in output
    assert "archive" in output
    for name, options in {
        "sweep": ["--namespace", "--root", "--interval", "--threshold", "--once", "--json"],
        "archive": ["FOLDER", "--namespace", "--group", "--subject", "--batch", "--once", "--json"],
    }.items():
        code, output, _ = _run(name, "--help")
        assert code == 0
        assert [option for option in (*options, "URL", "SIGTERM") if option not in output] == []


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
        ["archive", "sqlite:///{}/x.db"],
        ["archive", "sqlite:///{}/x.db", "{}/a", "--batch", "0"],
        ["archive", "sqlite:///{}/x.db", "{}/a", "--subject", "a b"],
        ["archive", "sqlite:///{}/x.db", "{}/a", "--group", "a:b"],
    ],
)
def test_wrong_call_is_refused_with_2(arguments: list[str], tmp_path: Path) -> None:
    code, output, errors = _run(*(word.replace("{}", str(tmp_path)) for word in arguments))
    assert (code, output) == (2, "")
    assert errors
    assert "Traceback" not in errors


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
