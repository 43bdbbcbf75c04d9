"""The processes of the kill tests: a zygote that forks writers and checkers.

The zygote has imported everything and opened nothing, so a fork costs milliseconds and
inherits no store. It takes one JSON order per line; all its children write to the one pipe
that is its standard output, a line at a time, so the reader sees them in their order:

    begin ROLE K          the writer starts write number K of a role
    ack ROLE K            the store acknowledged it
    wrong ROLE K ANSWER   the store answered something else than the role expects
    retry ROLE K CODE     the store failed; the same write follows under the same op_id
    dead STATUS           the child is gone, and everything it wrote is above this line

A role is one caller with cells of its own, or a record, or a record and messages, or a run, so
the state after its Kth write is known.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import apsw
import psycopg

import holdfast
import holdfast.backends.postgres.backend
import holdfast.backends.sqlite.backend

ROLES = ["set", "cas", "many", "toggle", "transaction", "merge", "record", "outbox", "events"] * 3
TOGETHER = {"many", "transaction", "merge"}
PARTS = ("a", "b", "c")
RETRY_SECS = 0.02


def cells_of(role: int) -> list[str]:
    kind = ROLES[role]
    return [f"{kind}{role}.{part}" for part in PARTS] if kind in TOGETHER else [f"{kind}{role}"]


def write_of(role: int, k: int) -> tuple[str, tuple[Any, ...], object]:  # noqa: PLR0911 - one per kind
    """The Kth write of a role: the call, its arguments and the right answer."""
    names = cells_of(role)
    match ROLES[role]:
        case "set":
            return "set", (names[0], k), k
        case "cas":
            return "cas", (names[0], k - 1 or None, k), k
        case "many" | "transaction" as kind:
            call = "set_many" if kind == "many" else kind
            return call, (dict.fromkeys(names, k),), dict.fromkeys(names, k)
        case "merge":
            # Above both sides: the branch is at version k, what it is merged into too.
            return "merge", (f"b{role}", dict.fromkeys(names, k)), dict.fromkeys(names, k + 1)
        case "record":
            return "record", (names[0], k - 1 or None, k), True
        case "outbox":
            return "outbox", (names[0], k), f"{names[0]}.{k}"
        case "events":
            return "append", (names[0], k), [2 * k - 1, 2 * k]
        case _ if k % 2:
            return "init", (names[0], k), (k + 1) // 2
        case _:
            return "delete", (names[0],), True


def progress_of(role: int, store: holdfast.Store) -> int:
    """How many writes of a role the store holds; raises when they are not whole and in order."""
    kind = ROLES[role]
    if kind == "merge":
        return merged_of(role, store)
    if kind in {"record", "outbox"}:
        return recorded_of(role, store)
    if kind == "events":
        return appended_of(role, store)
    counts = []
    for name in cells_of(role):
        history = [(cell.version, cell.value) for cell in store.cells.getv(name)]
        newest = history[0][0] if history else 0
        step = 2 if kind == "toggle" else 1
        wanted = [(version, step * version - step + 1) for version in range(newest, 0, -1)]
        assert history == wanted, f"{name}: history {history}, wanted {wanted}"
        current = store.cells.get_versioned(name)
        deleted = current is None and newest > 0
        assert not deleted or kind == "toggle", f"{name} is gone"
        if current is not None:
            assert (current.version, current.value) == history[0], f"{name}: {current}"
        counts.append(step * newest - (kind == "toggle" and newest > 0 and not deleted))
    assert len(set(counts)) == 1, f"half of a commit: {dict(zip(PARTS, counts, strict=True))}"
    return counts[0]


def merged_of(role: int, store: holdfast.Store) -> int:
    """How many merges of a role the store holds; the branch may be one write ahead."""
    branches = [branch.name for branch in store.branches.list()]
    states = []
    for cells in (store.cells, store.cells.on(f"b{role}"))[: 1 + (f"b{role}" in branches)]:
        above = cells is store.cells  # a merged version is one above the branch's
        counts = set()
        for name in cells_of(role):
            history = [(cell.version, cell.value) for cell in cells.getv(name)]
            wanted = [(k + above, k) for k in range(len(history), 0, -1)]
            assert history == wanted, f"{name}: history {history}, wanted {wanted}"
            counts.add(len(history))
        assert len(counts) == 1, f"half of a commit: {counts} of {cells_of(role)}"
        states.append(counts.pop())
    assert states[-1] - states[0] in (0, 1), f"the branch is at {states[-1]}, main at {states[0]}"
    return states[0]


def recorded_of(role: int, store: holdfast.Store) -> int:
    """How many writes of a role its record holds; each of an outbox has its message."""
    (name,) = cells_of(role)
    done = int(store.records.get_field(name, "n") or 0)
    if ROLES[role] == "outbox":
        store.transport.create_group(f"check.{name}", name, from_start=True)
        with store.transport.consumer(f"check.{name}", prefetch=1000) as consumer:
            found = []
            while (delivery := consumer.next(0)) is not None:
                found.append(delivery.message.payload)
        store.transport.delete_group(f"check.{name}")
        assert found == list(range(1, done + 1)), f"{name}: record at {done}, messages {found}"
    return done


def appended_of(role: int, store: holdfast.Store) -> int:
    """How many appends of a role its run holds; each is of two events."""
    (name,) = cells_of(role)
    found: list[holdfast.Event] = []
    while page := store.events.fetch_events(name, after_seq=len(found)):
        found += page
    done = len(found) // 2
    wanted = [(at + 1, f"{at // 2 + 1}.{at % 2}", at // 2 + 1) for at in range(2 * done)]
    held = [(event.run_seq, event.idempotency_key, event.event_data) for event in found]
    assert held == wanted, f"{name}: {len(held)} events, the last are {held[-3:]}"
    snapshot = store.events.get_snapshot(name)
    assert (snapshot.last_event_seq if snapshot else 0) == 2 * done, f"{name}: {snapshot}"
    return done


def pair_of(name: str, k: int) -> tuple[list[holdfast.Event], int]:
    """The Kth append to a run: its events, and where the run must be."""
    events = [holdfast.Event(name, "Noted", f"{k}.{half}", k) for half in range(2)]
    return events, 2 * k - 2


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Script:
    """What one role says and does, one write after another, in either colour."""

    def __init__(self, role: int, done: int, *, run: str, ack_first: bool) -> None:
        self.role = role
        self.k = done
        self._run = run
        self._ack_first = ack_first

    def __iter__(self) -> Iterator[tuple[str, tuple[Any, ...], uuid.UUID]]:
        while True:
            self.k += 1
            call, args, self._wanted = write_of(self.role, self.k)
            op_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._run}/{self.role}/{self.k}")
            say("begin", self.role, self.k)
            if self._ack_first:
                say("ack", self.role, self.k)
            yield call, args, op_id

    def heard(self, answer: object) -> None:
        if answer != self._wanted:
            say("wrong", self.role, self.k, json.dumps(answer))
        elif not self._ack_first:
            say("ack", self.role, self.k)

    def failed(self, error: holdfast.StoreError) -> None:
        say("retry", self.role, self.k, error.code)


def do(store: holdfast.Store, call: str, args: tuple[Any, ...], op_id: uuid.UUID) -> object:
    """The answer to one write; a transaction writes its cells one by one."""
    if call == "merge":
        branch, values = args
        store.branches.fork(branch, op_id=uuid.uuid5(uuid.NAMESPACE_URL, branch))
        store.cells.on(branch).set_many(values, op_id=op_id)
        return store.branches.merge(branch, op_id=op_id).merged
    if call == "record":
        name, before, after = args
        return store.records.compare_and_swap(name, "n", before, after, op_id=op_id)
    if call == "outbox":
        name, k = args
        with store.transaction(timeout=60) as tx:
            tx.records.set_field(name, "n", k)
            return tx.transport.publish(name, k, message_id=f"{name}.{k}")
    if call == "append":
        events, before = pair_of(*args)
        return [one.run_seq for one in store.events.append_events(events, expected_seq=before)]
    if call != "transaction":
        return getattr(store.cells, call)(*args, op_id=op_id)
    with store.transaction(timeout=60) as tx:
        return {name: tx.cells.set(name, value, op_id=op_id) for name, value in args[0].items()}


async def do_async(
    store: holdfast.AsyncStore, call: str, args: tuple[Any, ...], op_id: uuid.UUID
) -> object:
    """The answer to one write, awaited."""
    if call == "merge":
        branch, values = args
        await store.branches.fork(branch, op_id=uuid.uuid5(uuid.NAMESPACE_URL, branch))
        await store.cells.on(branch).set_many(values, op_id=op_id)
        return (await store.branches.merge(branch, op_id=op_id)).merged
    if call == "record":
        name, before, after = args
        return await store.records.compare_and_swap(name, "n", before, after, op_id=op_id)
    if call == "outbox":
        name, k = args
        async with store.transaction(timeout=60) as tx:
            await tx.records.set_field(name, "n", k)
            return await tx.transport.publish(name, k, message_id=f"{name}.{k}")
    if call == "append":
        events, before = pair_of(*args)
        appended = await store.events.append_events(events, expected_seq=before)
        return [one.run_seq for one in appended]
    if call != "transaction":
        return await getattr(store.cells, call)(*args, op_id=op_id)
    async with store.transaction(timeout=60) as tx:
        return {
            name: await tx.cells.set(name, value, op_id=op_id) for name, value in args[0].items()
        }


def write(url: str, done: list[int], *, run: str, colour: str, ack_first: bool) -> None:
    """Write without end, every role as a thread or a task of its own."""
    scripts = [Script(role, n, run=run, ack_first=ack_first) for role, n in enumerate(done)]
    if colour == "async":
        asyncio.run(write_async(url, scripts))
        return
    with holdfast.open(url) as store:

        def work(script: Script) -> None:
            for call, args, op_id in script:
                while True:
                    try:
                        script.heard(do(store, call, args, op_id))
                        break
                    except holdfast.StoreError as error:
                        script.failed(error)
                        time.sleep(RETRY_SECS)

        threads = [threading.Thread(target=work, args=(script,)) for script in scripts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def write_async(url: str, scripts: list[Script]) -> None:
    async with holdfast.open_async(url) as store:

        async def work(script: Script) -> None:
            for call, args, op_id in script:
                while True:
                    try:
                        script.heard(await do_async(store, call, args, op_id))
                        break
                    except holdfast.StoreError as error:
                        script.failed(error)
                        await asyncio.sleep(RETRY_SECS)

        await asyncio.gather(*map(work, scripts))


STEPS = """
    SELECT count(*)
    FROM (
        SELECT version, value, lag(version, 1, CAST(0 AS bigint))
            OVER (PARTITION BY namespace, branch_id, name ORDER BY commit_id) AS before
        FROM {prefix}cell_versions
        WHERE branch_id > 0 OR name NOT LIKE 'merge%'  -- a merge makes larger steps
    ) AS step
    WHERE version <> before + CASE WHEN value IS NULL THEN 0 ELSE 1 END
"""

HEADS = """
    SELECT count(*)
    FROM holdfast.cells AS head
    LEFT JOIN holdfast.cell_versions AS newest ON newest.commit_id = head.commit_id
    WHERE newest.name IS NULL
       OR newest.name <> head.name
       OR newest.version <> head.version
       OR (newest.value IS NULL) <> head.deleted
       OR newest.branch_id <> head.branch_id
       OR EXISTS (SELECT 1 FROM holdfast.cell_versions AS v
                  WHERE v.branch_id = head.branch_id
                    AND v.name = head.name
                    AND v.commit_id > head.commit_id)
"""


def check(url: str) -> None:
    """Say what a store that was just opened holds, after looking below its surface."""
    if url.startswith("postgresql"):
        with psycopg.connect(url.split("?", maxsplit=1)[0], autocommit=True) as connection:
            # A killed client's backends finish what they were doing: wait until they are gone.
            while connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ).fetchone():
                time.sleep(0.001)
    with holdfast.open(url) as store:
        done = [progress_of(role, store) for role in range(len(ROLES))]
    if url.startswith("postgresql"):
        with psycopg.connect(url.split("?", maxsplit=1)[0], autocommit=True) as connection:
            torn = connection.execute(HEADS.encode()).fetchone()
            gaps = connection.execute(STEPS.format(prefix="holdfast.").encode()).fetchone()
        assert torn == (0,), f"{torn} cells whose head is not their newest version"
    else:
        sqlite = apsw.Connection(url.removeprefix("sqlite:///").split("?")[0])
        verdict = sqlite.execute("PRAGMA integrity_check").fetchall()
        assert verdict == [("ok",)], verdict
        gaps = sqlite.execute(STEPS.format(prefix="holdfast_")).fetchone()
        sqlite.close()
    assert gaps == (0,), f"{gaps} versions that do not follow their cell's last one"
    say("done", json.dumps(done))


def main() -> None:
    """Serve orders: {"write": {…}} until {"kill": …} comes, or {"check": {…}} to its end."""
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                if "write" in order:
                    write(**order["write"])
                else:
                    check(**order["check"])
            except BaseException as error:  # noqa: BLE001  the parent reports it
                say("failed", json.dumps(f"{type(error).__name__}: {error}"))
            os._exit(0)
        if "write" in order:
            sys.stdin.readline()
            os.kill(child, signal.SIGKILL)
        say("dead", os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
