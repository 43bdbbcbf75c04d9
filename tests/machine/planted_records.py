"""Faults of records for the machine to find: each stands between it and the real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from holdfast import AsyncStore, Record, ScanFilter


class PlantedRecords:
    """The records as they are; a fault changes one method."""

    def __init__(self, store: AsyncStore, namespace: str) -> None:
        self.records = store.namespace(namespace).records

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever records have
        return getattr(self.records, name)


class PutMerges(PlantedRecords):
    async def put(self, key: str, fields: Mapping[str, Any], **options: Any) -> None:  # noqa: ANN401
        found = await self.records.get(key)
        old = found.fields if found is not None and fields else {}
        await self.records.put(key, {**old, **fields}, **options)


class FieldWritesClearTheTtl(PlantedRecords):
    async def set_fields(self, key: str, fields: Mapping[str, Any], **options: Any) -> None:  # noqa: ANN401
        await self.records.set_fields(key, fields, **options)
        await self.records.expire(key, None)


class ExpireDoesNothing(PlantedRecords):
    async def expire(self, key: str, ttl: float | None, **_: object) -> bool:
        del ttl
        return await self.records.get(key) is not None


class ExpectationsAreIgnored(PlantedRecords):
    async def compare_and_set(self, key: str, **options: Any) -> bool:  # noqa: ANN401
        return await self.records.compare_and_set(key, **{**options, "expect": {}})


class NoneIsAnEmptyValue(PlantedRecords):
    async def set_fields(self, key: str, fields: Mapping[str, Any], **options: Any) -> None:  # noqa: ANN401
        kept = {name: b"" if value is None else value for name, value in fields.items()}
        await self.records.set_fields(key, kept, **options)


class DeleteSaysYes(PlantedRecords):
    async def delete(self, key: str, **options: Any) -> bool:  # noqa: ANN401
        await self.records.delete(key, **options)
        return True


class OperationsAreForgotten(PlantedRecords):
    async def delete(self, key: str, **_: object) -> bool:
        return await self.records.delete(key)


class NamespacesAreOne(PlantedRecords):
    def __init__(self, store: AsyncStore, namespace: str) -> None:
        super().__init__(store, namespace.rstrip("%"))


class ScanDropsTheLast(PlantedRecords):
    async def scan(self, prefix: str, **options: Any) -> AsyncIterator[tuple[str, Record]]:  # noqa: ANN401
        held: tuple[str, Record] | None = None
        async for found in self.records.scan(prefix, **options):
            if held is not None:
                yield held
            held = found
        if held is not None and held[0] != "ä":
            yield held


class NumbersCompareAsText(PlantedRecords):
    def scan(self, prefix: str, *, filters: list[ScanFilter], **options: Any) -> Any:  # noqa: ANN401
        asked = [one for one in filters if one.op not in {"lt", "gt"}]
        below = [one for one in filters if one.op in {"lt", "gt"}]

        async def found() -> AsyncIterator[tuple[str, Record]]:
            async for key, record in self.records.scan(prefix, filters=asked, **options):
                values = [(record.fields.get(one.field), one) for one in below]
                if all(
                    value is not None
                    and (value < one.value if one.op == "lt" else value > one.value)  # type: ignore[operator]
                    for value, one in values
                ):
                    yield key, record

        return found()


RECORD_FAULTS: list[type[PlantedRecords]] = [
    PutMerges,
    FieldWritesClearTheTtl,
    ExpireDoesNothing,
    ExpectationsAreIgnored,
    NoneIsAnEmptyValue,
    DeleteSaysYes,
    OperationsAreForgotten,
    NamespacesAreOne,
    ScanDropsTheLast,
    NumbersCompareAsText,
]
