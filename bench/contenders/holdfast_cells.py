"""What both colours of Holdfast's contender share: the URL, the first versions, the check."""

import asyncio
from collections.abc import Mapping
from typing import Final

import holdfast
from bench.scenario import Work, value

_AT_ONCE: Final = 1000


def store_url(where: str, options: Mapping[str, str]) -> str:
    """The URL for a path of SQLite, or for the URL of a database on a server."""
    server = "://" in where
    url = where if server else f"sqlite:///{where}"
    names = ("durability", "pool_size") if server else ("durability", "commit", "vfs")
    settings = {
        "durability": "always",
        **{name: options[name] for name in names if name in options},
    }
    query = "&".join(f"{name}={value}" for name, value in settings.items())
    return f"{url}{'&' if '?' in url else '?'}{query}"


async def fill(url: str, work: Work) -> None:
    """Give every cell as many versions as the work asks for, many writes to a commit."""
    async with holdfast.open_async(url) as store:
        names = work.all_cells()
        await store.cells.set_many(dict.fromkeys(names, value(0)))
        async with asyncio.TaskGroup() as group:
            for number in range(1, work.versions):
                for name in names:
                    group.create_task(store.cells.set(name, value(-number)))


def add_others(url: str, work: Work) -> None:
    """Add the cells of others, as another process would: through a store of its own."""
    with holdfast.open(url) as store:
        names = work.other_cells()
        for begin in range(0, work.others, _AT_ONCE):
            store.cells.set_many(dict.fromkeys(names[begin : begin + _AT_ONCE], value(0)))


def check_versions(work: Work, versions: list[int], *, won: int, done: int) -> dict[str, float]:
    """Raise unless exactly the accepted writes arrived; the share that was accepted, if hot."""
    written = sum(versions) - work.versions * len(versions)
    expected = {"set": done, "cas": won, "increment": done}.get(work.operation, 0)
    assert written == expected, f"{written} writes arrived, {expected} were accepted"
    if work.operation != "cas":
        return {}
    if work.hot:
        return {"accepted": won / done}
    assert won == done, f"{done - won} of {done} were refused though nobody else wrote"
    return {}
