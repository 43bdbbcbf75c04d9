"""Specs for search: what is found, what is not, and that the index follows every write."""

from __future__ import annotations

import pytest

from holdfast import AsyncStore, Capability, InvalidArgument, InvalidState, NotFound, StoreConfig
from holdfast.aio.cells import AsyncCells
from holdfast.aio.transaction import AsyncTransaction
from holdfast.facets.search import MAX_HITS, MAX_VALUE_BYTES, MAX_WORDS
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

SEARCH = Capability.CELLS_SEARCH


async def _names(cells: AsyncCells, words: str) -> list[str]:
    return sorted(hit.name for hit in await cells.search(words, limit=MAX_HITS))


async def _searchable(world: World, history: int | None = None) -> AsyncStore:
    """A store with search on, of the world's own or with its own retention."""
    config = StoreConfig() if history is None else StoreConfig(history=history)
    store = world.store if history is None else await world.open_fresh(config)
    await store.cells.enable_search()
    return store


ADA = {"name": "Ada Lovelace", "born": 1815, "notes": [{"tag": "first-programmer"}, 2.5]}


FOUND = [
    "ada",
    "Lovelace ADA",
    "1815",
    "name",
    "notes tag",
    "first",
    "programmer",
    "2",
    "5",
    "people",
    "17",
    "people ada 1815 programmer",
    "lov*",
    "LOV* 18* pe*",
    "ada*",
    "ada ada",
]


@needs(SEARCH)
async def test_cell_is_found_by_words_of_its_name_and_value(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("people/17", ADA)
    await cells.set("other", ["nothing", 4])
    found = {words: await _names(cells, words) for words in FOUND}
    assert found == {words: ["people/17"] for words in FOUND}


NOT_FOUND = [
    "love",
    "adalovelace",
    "ada nothing",
    "181",
    "815",
    "grace",
    "grace*",
    "ada OR grace",
    "true",
    "null",
]


@needs(SEARCH)
async def test_cell_is_not_found_unless_all_words_are_there(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("people/17", ADA | {"alive": True, "spouse": None})
    await cells.set("other", "nothing")
    found = {words: await _names(cells, words) for words in NOT_FOUND}
    assert found == {words: [] for words in NOT_FOUND}


SCRIPTS = [
    ("ÉTÉ à la mer", "été"),
    ("été, déjà", "ÉTÉ DÉ*"),
    ("Ünïcode", "ÜNÏ*"),
    ("Москва", "москва"),
    ("ΑΘΗΝΑΣ", "αθηνας"),
    ("日本語 テスト", "日本語"),
    ("日本語の本", "日*"),
    ("naïve", "NAÏVE"),
    ("e\u0301te\u0301", "E\u0301TE\u0301"),
    ("«quoted» \u2013 dashed…", "dashed quoted"),
    ("snow☃man", "man snow"),
    ("think🤔ing", "ing think"),
    ("٣٤ and 34", "٣٤"),
    ("snake_case", "case"),
]


@needs(SEARCH)
async def test_words_are_of_any_script_and_without_case(world: World) -> None:
    store = await _searchable(world)
    for number, (text, _) in enumerate(SCRIPTS):
        await store.namespace(f"n{number}").cells.set("x", {"text": text})
    found = {
        words: await _names(store.namespace(f"n{number}").cells, words)
        for number, (_, words) in enumerate(SCRIPTS)
    }
    assert found == {words: ["x"] for _, words in SCRIPTS}


@needs(SEARCH)
async def test_accents_count(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("x", "résumé")
    assert await _names(cells, "resume") == []


SIGNS = [
    '"alpha" beta',
    "alpha & beta",
    "alpha | beta",
    "alpha:beta",
    "name:alpha beta",
    "(alpha beta",
    "alpha) ^beta",
    "-alpha +beta !",
    "{alpha} [beta]",
    "alpha's beta",
    "alpha\\beta",
    "alpha\0beta",
    "alpha % _ beta",
    "'alpha' <-> 'beta'",
    "* alpha ** beta",
    ":* alpha:* beta:A",
    "alpha;beta--",
]


@needs(SEARCH)
async def test_signs_of_an_engines_own_language_only_separate_words(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("x", {"name": "alpha beta s a"})
    await cells.set("y", "alpha")
    found = {words: await _names(cells, words) for words in SIGNS}
    assert found == {words: ["x"] for words in SIGNS}


OPERATORS = ["AND", "OR", "NOT", "NEAR", "and or", "near(near)", "NOT not"]


@needs(SEARCH)
async def test_words_that_are_operators_elsewhere_are_words(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("x", "and or not near")
    await cells.set("y", "something else")
    found = {words: await _names(cells, words) for words in OPERATORS}
    assert found == {words: ["x"] for words in OPERATORS}


@needs(SEARCH)
async def test_query_without_a_word_is_refused(world: World) -> None:
    for words in ["", " ", "*", "**", '"', ":-)", "\0", "☃", "…", "_ _"]:
        with pytest.raises(InvalidArgument, match="words: no letter or digit"):
            await world.store.cells.search(words)


@needs(SEARCH)
async def test_queries_and_limits_that_cannot_be_are_refused(world: World) -> None:
    cells = world.store.cells
    with pytest.raises(InvalidArgument, match="words: wanted text, found list"):
        await cells.search(["ada"])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=f"words: {MAX_WORDS + 1} of them"):
        await cells.search(" ".join(f"w{number}" for number in range(MAX_WORDS + 1)))
    for limit in (0, -1, MAX_HITS + 1, True, 1.5, None):
        with pytest.raises(InvalidArgument, match="limit: wanted a whole number"):
            await cells.search("ada", limit=limit)  # type: ignore[arg-type]


@needs(SEARCH)
async def test_longest_query_is_answered(world: World) -> None:
    cells = (await _searchable(world)).cells
    words = [f"w{number}" for number in range(MAX_WORDS)]
    await cells.set("x", words)
    assert await _names(cells, " ".join(words)) == ["x"]


@needs(SEARCH)
async def test_bytes_are_not_indexed(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("plain", b"hello")
    await cells.set("deep", {"data": [b"hello", {"more": b"hello"}], "said": "hi"})
    await cells.set("lookalike", {"$bytes": "hello"})
    await cells.set("neighbours", {"$bytes": "hello", "other": 1})
    assert await _names(cells, "hello") == ["lookalike", "neighbours"]
    assert await _names(cells, "aGVsbG8") == []
    assert await _names(cells, "bytes") == ["lookalike", "neighbours"]
    assert await _names(cells, "more hi") == ["deep"]


@needs(SEARCH)
async def test_best_come_first_and_equals_by_name(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set_many(
        {
            "c/long": "apple and very many other words that have nothing to do with it at all",
            "b": "apple pie",
            "a": "apple tart",
            "d": "apple apple",
            "e": "none",
        }
    )
    hits = await cells.search("apple")
    assert [hit.name for hit in hits] == ["d", "a", "b", "c/long"]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[1].score == hits[2].score
    assert await cells.search("apple", limit=2) == hits[:2]


@needs(SEARCH)
async def test_every_kind_of_write_is_found(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.init("init", "word")
    await cells.set("set", "word")
    await cells.cas("cas", None, "word")
    await cells.set_many({"many": "word", "more": "word"})
    assert await _names(cells, "word") == ["cas", "init", "many", "more", "set"]


@needs(SEARCH)
async def test_only_the_newest_value_is_found(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("x", "old")
    version = await cells.set("x", "newer")
    assert await cells.cas("x", version, "newest") == 3
    assert [await _names(cells, word) for word in ("old", "newer", "newest")] == [[], [], ["x"]]


@needs(SEARCH)
async def test_deleted_cell_is_not_found_until_it_is_back(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("x", "word")
    await cells.delete("x")
    assert await _names(cells, "word") == []
    assert await _names(cells, "x") == []
    await cells.set("x", "other")
    assert await _names(cells, "word") == []
    assert await _names(cells, "x") == ["x"]


@needs(SEARCH)
async def test_namespaces_find_their_own_cells_only(world: World) -> None:
    store = await _searchable(world)
    spaces = ["one", "One", "one two", "o'ne", 'o"ne', "o\\ne", ":one", "öne", "on", "one*"]
    for space in spaces:
        await store.namespace(space).cells.set("x", ["word", space])
        await store.namespace(space).cells.set(f"only {space}", "word")
    for space in spaces:
        assert await _names(store.namespace(space).cells, "word") == sorted(["x", f"only {space}"])
    assert await _names(store.cells, "word") == []


@needs(SEARCH, Capability.TRANSACTIONS)
async def test_index_changes_with_the_transaction(world: World) -> None:
    store = await _searchable(world)
    await store.cells.set("x", "before")

    async with store.transaction() as tx:
        await tx.cells.set("x", "inside")
        assert await _names(tx.cells, "inside") == ["x"]
        assert await _names(tx.cells, "before") == []
        assert await _names(store.cells, "before") == ["x"]
        assert await _names(store.cells, "inside") == []
    assert await _names(store.cells, "inside") == ["x"]


@needs(SEARCH, Capability.TRANSACTIONS)
async def test_index_forgets_what_was_rolled_back(world: World) -> None:
    store = await _searchable(world)
    await store.cells.set("x", "inside")

    async def fail(tx: AsyncTransaction) -> None:
        await tx.cells.set("x", "undone")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.transact(fail)
    assert await _names(store.cells, "undone") == []
    assert await _names(store.cells, "inside") == ["x"]


@needs(SEARCH, Capability.TRANSACTIONS)
async def test_search_is_not_turned_on_or_off_inside_a_transaction(world: World) -> None:
    for name in ("enable_search", "disable_search"):
        async with world.store.transaction() as tx:
            with pytest.raises(InvalidState, match="outside of transactions"):
                await getattr(tx.cells, name)()


@needs(SEARCH)
async def test_search_is_off_until_it_is_turned_on(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", "word")
    with pytest.raises(InvalidState, match=r"search is off; .*enable_search\(\)"):
        await cells.search("word")
    await cells.enable_search()
    assert await _names(cells, "word") == ["x"]
    await cells.disable_search()
    with pytest.raises(InvalidState, match="search is off"):
        await cells.search("word")
    await cells.disable_search()
    await cells.set("y", "word")
    await cells.enable_search()
    assert await _names(cells, "word") == ["x", "y"]


@needs(SEARCH)
async def test_what_was_there_before_is_indexed(world: World) -> None:
    store = world.store
    for number in range(3):
        await store.cells.set_many({f"x{at}": f"word v{number}" for at in range(400)})
    await store.cells.delete("x0")
    await store.namespace("other").cells.set("y", "word")
    calls: list[tuple[int, int]] = []
    await store.cells.enable_search(progress=lambda *call: calls.append(call))
    assert len(await store.cells.search("word v2", limit=MAX_HITS)) == 399
    assert await _names(store.cells, "v1") == []
    assert await _names(store.cells, "x0") == []
    assert await _names(store.namespace("other").cells, "word") == ["y"]
    assert len(calls) > 2
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1]


@needs(SEARCH)
async def test_turning_it_on_again_changes_nothing(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("x", "word")
    hits = await cells.search("word")
    await cells.enable_search()
    assert await cells.search("word") == hits


@needs(SEARCH)
async def test_interrupted_building_is_finished_by_the_next_call(world: World) -> None:
    store = world.store
    await store.cells.set_many({f"x{at}": "old" for at in range(1500)})

    def interrupt(done: int, total: int) -> None:
        assert done < total
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await store.cells.enable_search(progress=interrupt)
        with pytest.raises(InvalidState, match="search index is not complete"):
            await store.cells.search("old")
    await store.cells.set_many({"x0": "new", "x1499": "new", "x2000": "new"})
    await store.cells.delete("x700")
    await store.cells.enable_search()
    assert await _names(store.cells, "new") == ["x0", "x1499", "x2000"]
    old = [await _names(store.cells, f"old x{at}") for at in range(0, 1500, 100)]
    assert old == [[], *([f"x{at}"] if at != 700 else [] for at in range(100, 1500, 100))]
    assert await _names(store.cells, "old x1499") == []
    assert len(await store.cells.search("old x1*", limit=MAX_HITS)) == 610


@needs(SEARCH, Capability.SHARED)
async def test_several_may_turn_it_on_at_once_while_others_write(world: World) -> None:
    store = world.store
    await store.cells.set_many({f"x{at}": "old" for at in range(600)})
    stores = [await world.open() for _ in range(3)]

    async def write(other: AsyncStore) -> None:
        for at in range(0, 600, 60):
            await other.cells.set(f"x{at}", "new")

    calls = [other.cells.enable_search() for other in stores]
    await world.together([*calls, write(store)])
    assert await _names(store.cells, "new") == sorted(f"x{at}" for at in range(0, 600, 60))
    assert len(await store.cells.search("old", limit=MAX_HITS)) == 590


@needs(SEARCH, Capability.SHARED)
async def test_store_that_was_open_before_keeps_the_index_too(world: World) -> None:
    early = await world.open()
    await early.cells.set("x", "early")
    await world.store.cells.enable_search()
    await early.cells.set("x", "late")
    assert await _names(world.store.cells, "late") == ["x"]
    assert await _names(early.cells, "early") == []


@needs(SEARCH)
async def test_large_value_is_written_and_found_by_its_name_only(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("fits", "z" + " word" * (MAX_VALUE_BYTES // 5 - 1))
    await cells.set("too/large", "word " * (MAX_VALUE_BYTES // 5 + 1))
    assert await _names(cells, "word") == ["fits"]
    assert await _names(cells, "too") == ["too/large"]


@needs(SEARCH)
@pytest.mark.parametrize(
    "value",
    [
        list(range(MAX_VALUE_BYTES // 7)),
        " ".join(chr(0x4E00 + at) for at in range(20_000)) + " " + "字 " * 20_000,
        "a " * (MAX_VALUE_BYTES // 2 - 5),
        "w" * (MAX_VALUE_BYTES - 10),
        [float(f"1.{number}e300") for number in range(20_000)],
        [float(f"1.{number}e-300") for number in range(20_000)],
    ],
    ids=["whole", "ideographs", "one word often", "one long word", "huge", "tiny"],
)
async def test_value_of_many_words_is_written(world: World, value: object) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("x", value)
    await cells.set("y", value)
    await cells.delete("y")
    assert await _names(cells, "x") == ["x"]
    assert await cells.get("x") == value


ODD_VALUES: list[object] = [
    "nul\0 word",
    "\0\0word\0",
    {"key\0": "word", "back\\u0000": "\\", "\\\\": "\\\0"},
    ["\\u0000 word", "\\\\\0", "\x1f\x7f\u2028"],
    [1e308, -1e-308, 9223372036854775807, -9223372036854775808, 0.1 + 0.2, "word"],
    ["word", None, True, False, "", {}, [], {"": ""}],
    {"a'b": 'c"d', "%s %(x)s": "word", "$1": "{letters}"},
    ["word", "x" * 5000, "é" * 5000],
]


@needs(SEARCH)
async def test_any_value_can_be_written_and_searched(world: World) -> None:
    cells = (await _searchable(world)).cells
    for number, value in enumerate(ODD_VALUES):
        await cells.set(f"x{number}", value)
        assert await cells.get(f"x{number}") == value
    assert await _names(cells, "word") == [f"x{number}" for number in range(len(ODD_VALUES))]


@needs(SEARCH)
async def test_deep_value_is_searched_to_its_bottom(world: World) -> None:
    cells = (await _searchable(world)).cells
    value: object = "bottom"
    for level in range(120):
        value = {f"k{level}": [value]}
    await cells.set("x", value)
    assert await _names(cells, "bottom k0 k119") == ["x"]


@needs(SEARCH)
async def test_very_long_word_is_found(world: World) -> None:
    cells = (await _searchable(world)).cells
    await cells.set("x", "x" * 5000)
    assert await _names(cells, "X" * 5000) == ["x"]
    assert await _names(cells, "X" * 300 + "*") == ["x"]
    assert await _names(cells, "x" * 300) == []


@needs(SEARCH)
async def test_retention_leaves_the_newest_found(world: World) -> None:
    store = await _searchable(world, history=1)
    for word in ("one", "two", "three"):
        await store.cells.set("x", word)
    await store.cells.prune()
    assert [await _names(store.cells, word) for word in ("one", "two", "three")] == [[], [], ["x"]]


# Branches


@needs(SEARCH, Capability.BRANCHES)
async def test_branch_finds_what_it_sees(world: World) -> None:
    store = await _searchable(world)
    await store.cells.set_many({"kept": "word", "changed": "word", "deleted": "word"})
    await store.branches.fork("b")
    branch = store.cells.on("b")
    assert await _names(branch, "word") == ["changed", "deleted", "kept"]
    await branch.set("changed", "else")
    await branch.delete("deleted")
    await branch.set("own", "word")
    assert await _names(branch, "word") == ["kept", "own"]
    assert await _names(branch, "else") == ["changed"]
    assert await _names(store.cells, "word") == ["changed", "deleted", "kept"]
    assert await _names(store.cells, "else") == []


@needs(SEARCH, Capability.BRANCHES)
async def test_branch_does_not_find_what_its_parent_wrote_since(world: World) -> None:
    store = await _searchable(world)
    await store.cells.set_many({"x": "old", "gone": "old"})
    await store.branches.fork("b")
    await store.cells.set("x", "newer")
    await store.cells.set("x", "newest")
    await store.cells.delete("gone")
    await store.cells.set("later", "old")
    branch = store.cells.on("b")
    assert await _names(branch, "old") == ["gone", "x"]
    assert await _names(branch, "newest") == []
    assert await _names(store.cells, "old") == ["later"]
    assert await _names(store.cells, "newest") == ["x"]


@needs(SEARCH, Capability.BRANCHES)
async def test_branch_of_branches_finds_through_all_levels(world: World) -> None:
    store = await _searchable(world)
    source = "main"
    for level in range(5):
        cells = store.cells.on(source)
        await cells.set("all", f"word level{level}")
        await cells.set(f"own{level}", "word")
        await store.branches.fork(f"b{level}", source=source)
        await cells.set("all", f"word after{level}")
        source = f"b{level}"
    last = store.cells.on("b4")
    assert await _names(last, "word") == ["all", *(f"own{level}" for level in range(5))]
    assert await _names(last, "level4") == ["all"]
    assert await _names(store.cells.on("b1"), "word after2") == ["all"]
    assert await _names(store.cells.on("b1"), "word own*") == ["own0", "own1", "own2"]
    for gone in ("level3", "after4", "after0"):
        assert await _names(last, gone) == []


@needs(SEARCH, Capability.BRANCHES)
async def test_what_was_there_before_is_indexed_on_branches_too(world: World) -> None:
    store = world.store
    await store.cells.set("x", "one")
    await store.branches.fork("b1")
    await store.cells.set("x", "two")
    await store.cells.set("x", "three")
    await store.branches.fork("b2")
    await store.cells.on("b2").set("y", "own")
    await store.cells.delete("x")
    await store.cells.enable_search()
    found = {
        branch: [await _names(store.cells.on(branch), word) for word in ("one", "two", "three")]
        for branch in ("main", "b1", "b2")
    }
    assert found == {
        "main": [[], [], []],
        "b1": [["x"], [], []],
        "b2": [[], [], ["x"]],
    }
    assert await _names(store.cells.on("b2"), "own") == ["y"]


@needs(SEARCH, Capability.BRANCHES)
async def test_merge_is_found_on_its_target(world: World) -> None:
    store = await _searchable(world)
    await store.cells.set_many({"x": "old", "gone": "old"})
    await store.branches.fork("b")
    await store.cells.on("b").set("x", "merged")
    await store.cells.on("b").delete("gone")
    await store.branches.merge("b")
    assert await _names(store.cells, "merged") == ["x"]
    assert await _names(store.cells, "old") == []


@needs(SEARCH, Capability.BRANCHES)
async def test_search_on_a_missing_branch_is_not_found(world: World) -> None:
    store = await _searchable(world)
    with pytest.raises(NotFound):
        await store.cells.on("nowhere").search("word")
    await store.cells.set("x", "word")
    await store.branches.fork("b")
    await store.cells.on("b").set("y", "word")
    await store.branches.delete("b")
    with pytest.raises(NotFound):
        await store.cells.on("b").search("word")
    await store.branches.fork("b")
    assert await _names(store.cells.on("b"), "word") == ["x"]


@needs(SEARCH, Capability.BRANCHES, Capability.CELLS_HISTORY)
async def test_branch_finds_what_retention_kept_for_it(world: World) -> None:
    store = await _searchable(world, history=1)
    await store.cells.set("x", "old")
    await store.branches.fork("b")
    for word in ("one", "two", "three"):
        await store.cells.set("x", word)
    await store.cells.prune()
    assert await _names(store.cells.on("b"), "old") == ["x"]
    assert await _names(store.cells, "old") == []
    assert await _names(store.cells, "three") == ["x"]
