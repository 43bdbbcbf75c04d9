"""Where the store is, by the application's environment.

Who comes from one of the library's own modules has its settings already. They say where the
store is too, so that PERSISTENCE_MODULE is the one setting to change.
"""

from __future__ import annotations

from urllib.parse import quote

from eventsourcing.utils import Environment

from holdfast.url import MEMORY

URL = "HOLDFAST_URL"
_SQLITE, _POSTGRES = "SQLITE_DBNAME", "POSTGRES_DBNAME"


def store_url(env: Environment) -> str:
    """The URL that is set, or the one that the library's own settings amount to."""
    url = env.get(URL)
    if url:
        return url
    file, database = env.get(_SQLITE), env.get(_POSTGRES)
    if file and database:
        raise OSError(f"{_SQLITE} and {_POSTGRES} are both in the environment: set {URL}")
    if file:
        return _sqlite(file)
    if database:
        return _postgres(env, database)
    keys = ", ".join(env.create_keys(URL))
    raise OSError(
        f"the URL of a Holdfast store is not in the environment: {keys}; "
        f"nor is {_SQLITE} or {_POSTGRES}"
    )


def _sqlite(file: str) -> str:
    if file == MEMORY:
        return f"sqlite://{MEMORY}"
    if file.startswith("file:"):
        raise OSError(f"{_SQLITE} is a URI of SQLite's own: set {URL}, as sqlite:///path.db")
    return f"sqlite:///{quote(file)}"


def _postgres(env: Environment, database: str) -> str:
    user, password = (env.get(f"POSTGRES_{name}") or "" for name in ("USER", "PASSWORD"))
    host, port = (env.get(f"POSTGRES_{name}") or "" for name in ("HOST", "PORT"))
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    # A folder of sockets is a host too, and only then is there anything to quote.
    where = quote(host, safe=":[]") + (f":{port}" if port else "")
    return f"postgresql://{login}{'@' if login else ''}{where}/{quote(database, safe='')}"
