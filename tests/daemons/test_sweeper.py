"""The sweeper and the workers it looks after, as processes that are killed."""

from __future__ import annotations

import signal
from pathlib import Path

import holdfast
from tests.daemons.processes import (
    command,
    heard,
    kill,
    pass_time,
    start,
    stuck,
    totals,
    until,
)
from tests.sqlite.spent import counted

TASKS = 30
FEW, MANY = 1000, 100_000  # a purge looks at a few hundred old changes


def _retries(store: holdfast.Store) -> list[tuple[str, int]]:
    tasks = [store.tasks.get("mail", str(number)) for number in range(TASKS)]
    return [(task.state, task.retry_count) for task in tasks if task is not None]


def _told(store: holdfast.Store, subject: str) -> list[tuple[str, int]]:
    """Which tasks the messages under the subject are about, and their retries."""
    found = []
    with store.transport.consumer("test", subject, from_start=True) as consumer:
        while (delivery := consumer.next(0)) is not None:
            event = delivery.message.payload
            found.append((event["task_id"], event["retry_count"]))
            delivery.ack()
    return sorted(found)


def _sweep_once(url: str) -> dict[str, int]:
    return totals(command("sweep", url, "--once", "--json"))


def test_sweepers_at_once_retry_each_task_once(url: str) -> None:
    with holdfast.open(url) as store:
        stuck(store, TASKS)
        pass_time(url, 31)
        sweepers = [command("sweep", url, "--once", "--json") for _ in range(3)]
        assert sum(totals(sweeper)["retried"] for sweeper in sweepers) == TASKS
        assert _retries(store) == [("pending", 1)] * TASKS
        queued = _told(store, "gbe.tasks.mail.queue")
        assert queued == sorted((str(task), turn) for task in range(TASKS) for turn in (0, 1))


def test_killed_sweeper_leaves_its_work_to_another(url: str) -> None:
    with holdfast.open(url) as store:
        stuck(store, TASKS)
        pass_time(url, 31)
        victim = start("sweep", url)
        assert victim.stdin is not None
        for _ in range(TASKS // 3):
            assert heard(victim).startswith("retried")
            victim.stdin.write("\n")
            victim.stdin.flush()
        kill(victim)
        retried = sum(count for _, count in _retries(store))
        assert TASKS // 3 <= retried < TASKS
        assert _sweep_once(url)["retried"] == TASKS - retried
        assert _retries(store) == [("pending", 1)] * TASKS
        queued = _told(store, "gbe.tasks.mail.queue")
        assert queued == sorted((str(task), turn) for task in range(TASKS) for turn in (0, 1))


def test_killed_workers_task_is_retried_three_times_then_failed(url: str) -> None:
    with holdfast.open(url) as store:
        store.tasks.create("mail", "1")
        for attempt in range(4):
            worker = start("claim", url, "1", f"worker-{attempt}")
            assert heard(worker) == "True"
            kill(worker)
            assert _sweep_once(url) == {"retried": 0, "failed": 0, "queued": 0, "purged": 0}
            pass_time(url, 31)
            done = _sweep_once(url)
            assert (done["retried"], done["failed"]) == ((1, 0) if attempt < 3 else (0, 1))
        task = store.tasks.get("mail", "1")
        assert task is not None
        assert (task.state, task.retry_count) == ("failed", 3)
        assert "worker-3" in (task.error or "")
        assert _told(store, "gbe.events.system.error") == [("1", 3)]
        assert _told(store, "gbe.tasks.mail.queue") == []  # the group began with the errors


def test_running_sweeper_ends_by_a_signal(url: str) -> None:
    with holdfast.open(url) as store:
        stuck(store, 3)
        pass_time(url, 31)
        sweeper = command("sweep", url, "--interval", "3600", "--json")
        until(lambda: _retries(store) == [("pending", 1)] * 3)
        sweeper.send_signal(signal.SIGTERM)
        assert totals(sweeper)["retried"] == 3


def test_old_tasks_with_a_long_timeout_do_not_hide_a_stuck_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db?durability=cache"
    with holdfast.open(url) as store:
        for number in range(1200):
            store.tasks.create("mail", f"long-{number:04}")
            assert store.tasks.claim("mail", f"long-{number:04}", "w", timeout=100_000)
        store.tasks.create("mail", "z")
        assert store.tasks.claim("mail", "z", "w", timeout=100_000)
        store.records.set_fields("gbe.state.tasks.mail.z", {"timeout_at": None})
        pass_time(url, 301)
        assert holdfast.Sweeper(store).sweep().retried == 1


def test_terminal_tasks_cost_the_sweeper_nothing(tmp_path: Path) -> None:
    found = {}
    for ended in (FEW, MANY):
        url = f"sqlite:///{tmp_path}/{ended}.db?durability=cache"
        with counted() as spent, holdfast.open(url) as store:
            sweeper = holdfast.Sweeper(store)
            sweeper.sweep()  # makes its indexes
            done: dict[str, str | int] = {"state": "completed", "updated_at": 1, "timeout_at": 1}
            for first in range(0, ended, 1000):
                with store.transaction(60) as tx:
                    for number in range(first, min(first + 1000, ended)):
                        key = f"gbe.state.tasks.mail.done-{number}"
                        tx.records.put(key, {**done})
            stuck(store, 20)
            pass_time(url, 31)
            spent.take()
            assert sweeper.sweep().retried == 20
            statements, steps = spent.take()
            found[ended] = (len(statements), steps)
    assert found[FEW] == found[MANY]
    assert found[FEW][1] > 0
