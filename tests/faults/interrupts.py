"""Calls interrupted at every single step, as by Ctrl-C."""

from __future__ import annotations

import contextlib
import dis
import gc
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import holdfast

_HERE = Path(holdfast.__file__).parent


class Interrupted(KeyboardInterrupt):
    """What Ctrl-C raises, raised by the test."""


class Interrupt:
    """Raises Interrupted before the nth bytecode of what is traced.

    Finer than lines: the interpreter also looks for signals between a call and the assignment
    of what it returned. Garbage of other tests waits: its finalizers are not what is interrupted.
    """

    def __init__(self, nth: int, traced: Callable[[CodeType], bool]) -> None:
        self._left = nth
        self._traced = traced

    @property
    def hit(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> Self:
        gc.disable()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()

    def _call(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if event != "call" or not self._traced(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "opcode" and self._may_come(frame):
            self._left -= 1
            if self._left == 0:
                raise Interrupted
        return self._step

    def _may_come(self, frame: FrameType) -> bool:
        del frame
        return True


class Signal(Interrupt):
    """The same, only where the interpreter looks for signals: after calls, and where loops and
    functions begin. For code without finalizers that make good what is cut short elsewhere."""

    def __init__(self, nth: int, traced: Callable[[CodeType], bool]) -> None:
        super().__init__(nth, traced)
        self._before: dict[int, str] = {}  # what each frame ran last; by id, to keep none

    def _may_come(self, frame: FrameType) -> bool:
        before = self._before.get(id(frame), "")
        self._before[id(frame)] = dis.opname[_bytecode(frame.f_code)[frame.f_lasti]]
        return before in _LOOKED_AFTER


_LOOKED_AFTER = {"CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}


@cache
def _bytecode(code: CodeType) -> bytes:
    return code.co_code


def interrupt_everywhere(
    traced: Callable[[CodeType], bool],
    call: Callable[[], object],
    check: Callable[[], None],
    *,
    stride: int = 1,
    kind: type[Interrupt] = Interrupt,
) -> int:
    """Interrupt the call at its first step, its second, and so on; check after each."""
    nth = 0
    while True:
        nth += stride
        with kind(nth, traced) as interrupt, contextlib.suppress(Interrupted):
            call()
        check()
        if not interrupt.hit:
            return nth - stride


def modules(*names: str) -> Callable[[CodeType], bool]:
    """What is traced: all code of these modules of the library."""
    files = {str(_HERE / f"{name}.py") for name in names}
    return lambda code: code.co_filename in files
