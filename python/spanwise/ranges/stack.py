# SPDX-License-Identifier: Apache-2.0
"""A stack allocator: bytes that are pushed, and given up down to a mark (docs/design/stack.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, SupportsIndex

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Count, Made, Owner, refuse_views, view_at
from spanwise.errors import InvalidError, StateError
from spanwise.results.rows import Result

GROWTHS = ("copy", "chain")
"""How a stack gets larger, in the order of sw_stack_growth."""


@dataclass(frozen=True)
class StackStats(Result):
    """Figures of a stack.

    Attributes:
        depth: bytes that are pushed.
        held_bytes: of all its blocks.
        blocks: how many it has.
        growths: blocks that were added, or copied into, after the first.
        copied_bytes: by growth and by trims.
        relocated: registered pointers that were changed by these.
        registered: pointers that are registered now.
        slack_bytes: of a chain: at the ends of its lower blocks.
    """

    depth: int
    held_bytes: int
    blocks: int
    growths: int
    copied_bytes: int
    relocated: int
    registered: int
    slack_bytes: int


class StackBlock(Made):
    """What one push gave. It knows its depth, so it stays right when the stack moves."""

    __slots__ = ("__weakref__", "_depth", "_released", "_size", "_stack", "_views")
    _maker = "Stack.push"

    def _set(self, stack: Stack, depth: int, size: int) -> None:
        self._stack = stack
        self._views = Count()
        self._depth = depth
        self._size = size
        self._released = False

    @property
    def depth(self) -> int:
        """Bytes of the stack below it."""
        return self._depth

    @property
    def size_bytes(self) -> int:
        """As asked for."""
        return self._size

    @property
    def released(self) -> bool:
        """Whether it is gone, with a mark below it or with the stack."""
        return self._released

    @property
    def address(self) -> int:
        """Where its first byte is now. Growth by copy changes it.

        Raises:
            StateError: it is released.
        """
        with self._stack._lock:
            return int(ffi.cast("uintptr_t", self._locate()))

    def _locate(self) -> Any:
        c_stack = self._stack._open()
        if self._released:
            raise StateError(f"{self!r}: push another; what it pointed to is gone")
        return lib.sw_stack_at(c_stack, self._depth)

    def view(self) -> memoryview:
        """Its bytes, without a copy; while the view lives, the block is not moved or released.

        Raises:
            StateError: it is released.
        """
        with self._stack._lock:
            life = self._views.taken(self._stack._life)  # first: nothing moves it from here on
            try:
                address = int(ffi.cast("uintptr_t", self._locate()))
            except StateError:
                life.end()
                raise
            return view_at(address, self._size, life)

    def __repr__(self) -> str:
        state = "released" if self._released else f"at depth {self._depth:,}"
        return f"<StackBlock of {self._size:,} B, {state}>"


class StackPointer(Made):
    """A pointer into a stack that C has registered: growth by copy makes it follow its target.

    It is kept outside of the stack, or in the bytes of a block (`Stack.register`). It points into
    one pushed block: once that block is released, the pointer raises StateError, also if something
    else was pushed there since.
    """

    __slots__ = (
        "__weakref__",
        "_kept_at",
        "_kept_in",
        "_offset",
        "_own",
        "_registered",
        "_target",
    )
    _maker = "Stack.register"

    def _set(self, target: StackBlock, offset: int, slot: StackBlock | None, at: int) -> None:
        self._kept_in, self._kept_at = slot, at
        self._own = ffi.new("void **") if slot is None else None
        self._target = target
        self._offset = offset
        self._registered = False

    @property
    def target(self) -> StackBlock:
        """The block into which it points."""
        return self._target

    @property
    def offset(self) -> int:
        """Of the byte in the block."""
        return self._offset

    @property
    def registered(self) -> bool:
        """False after `unregister`, and after the block in which it is kept was released."""
        return self._registered

    def _slot(self) -> Any:
        """Where it is kept now."""
        if self._kept_in is None:
            return self._own
        return ffi.cast("void **", ffi.cast("char *", self._kept_in._locate()) + self._kept_at)

    @property
    def address(self) -> int:
        """What it holds now.

        Raises:
            StateError: it is not registered.
        """
        with self.target._stack._lock:
            slot = self._slot() if self._registered else None
            if slot is None or not self._registered:  # a __del__ may have ended it meanwhile
                raise StateError(f"{self!r}: register another")
            return int(ffi.cast("uintptr_t", slot[0]))

    def view(self) -> memoryview:
        """The bytes from where it points to the end of the block, without a copy.

        Raises:
            StateError: the block is released, the pointer is not registered, or somebody has
                overwritten the bytes in which it is kept.
        """
        with self.target._stack._lock:
            view = self.target.view()[self.offset :]
            if self.address != self.target.address + self.offset:
                raise StateError(f"{self!r}: the bytes in which it is kept were overwritten")
            return view

    def unregister(self) -> None:
        """Ends the registration; the pointer follows the stack no more.

        Raises:
            StateError: it has ended before.
        """
        stack = self.target._stack
        with stack._lock:
            if not self._registered:
                raise StateError(f"{self!r}: it is unregistered already")
            check(lib.sw_stack_unregister(stack._open(), self._slot()))
            self._registered = False
            stack._pointers = [pointer for pointer in stack._pointers if pointer is not self]

    def __repr__(self) -> str:
        state = "" if self._registered else ", unregistered"
        return f"<StackPointer to byte {self.offset:,} of {self.target!r}{state}>"


class Stack(Owner):
    """Bytes that are pushed one by one, and given up in one step down to a mark.

    A stack begins with 2 KiB and doubles: by copy, where all bytes move into a larger block, or as
    a chain of blocks. A block that was released raises StateError; while a view of a block is
    alive, what would move or release it raises BlockBusyError. After `close` every call raises
    StateError.

    Example:
        with Stack() as stack, stack.frame():
            row = stack.push(100)
            row.view()[:5] = b"hello"
    """

    def __init__(
        self,
        *,
        growth: str = "copy",
        first_bytes: SupportsIndex = 2 << 10,
        limit_bytes: SupportsIndex = 1 << 30,
        checked: bool = False,
    ) -> None:
        """Makes a stack without a block.

        Args:
            growth: one of GROWTHS.
            first_bytes: of its first block, a multiple of 16.
            limit_bytes: the most that its blocks may have, a multiple of 16.
            checked: `release` raises EscapeError if a registered pointer would outlive what it
                points to, and what is released is overwritten.

        Raises:
            InvalidError: one of them is not within these limits.
        """
        options = _lib.options_of(
            "sw_stack_options",
            growth=_lib.as_choice(growth, "growth", GROWTHS),
            first_bytes=_lib.as_index(first_bytes, "first_bytes"),
            limit_bytes=_lib.as_index(limit_bytes, "limit_bytes"),
            checked=int(checked),
        )
        c_stack = _lib.output_of(lib.sw_stack_create, options)
        self._growth = growth
        self._blocks: list[StackBlock] = []  # ascending by depth
        self._pointers: list[StackPointer] = []  # C writes into them when the stack moves
        super().__init__(c_stack, lib.sw_stack_destroy)

    @property
    def growth(self) -> str:
        """How it gets larger, one of GROWTHS."""
        return self._growth

    def _refuse_close(self) -> None:
        self._refuse_views(self._blocks, "ends")
        self._forget(0)
        for pointer in self._pointers:
            pointer._registered = False
        self._pointers.clear()

    # --- blocks ---

    def push(self, size: SupportsIndex) -> StackBlock:
        """Takes bytes on top, which are not zeroed.

        Raises:
            StackOverflowError: the stack would need more than limit_bytes.
            InvalidError: size is 0 or negative.
            BlockBusyError: the stack has to move, and a view of a block is alive.
            OutOfMemoryError: there is no memory for another block.
        """
        number = _lib.as_index(size, "size")
        with self._lock:
            depth = self.depth
            if self._growth == "copy" and number > self.stats().held_bytes - depth:
                self._refuse_views(self._blocks, "moves")
            if lib.sw_stack_push(self._open(), number) == ffi.NULL:
                check(lib.sw_last_error().status)
            self._blocks.append(StackBlock._make(self, depth, number))
            return self._blocks[-1]

    @property
    def depth(self) -> int:
        """Bytes that are pushed, each block rounded up to 16. It is a mark for `release`."""
        with self._lock:
            return int(lib.sw_stack_depth(self._open()))

    def release(self, mark: SupportsIndex, *, result: StackBlock | None = None) -> None:
        """Gives up all that was pushed since the mark was made.

        Args:
            mark: a depth that the stack had.
            result: a block that somebody is to have after the release.

        Raises:
            EscapeError: the result is above the mark; or, of a checked stack, a registered
                pointer that stays points above it.
            StateError: the mark was released before.
            InvalidError: it is no depth of a block.
            BlockBusyError: a view of a block that is to go is alive.
        """
        _lib.check_type(result, (StackBlock, type(None)), "result")
        number = _lib.as_index(mark, "mark")
        with self._lock:
            self._refuse_views([b for b in self._blocks if b.depth >= number], "is released")
            if number < self.depth and all(b.depth != number for b in self._blocks):
                raise InvalidError(f"mark {number} is inside a block; give one that depth had")
            address = ffi.NULL
            if result is not None:
                if result.released:
                    raise StateError(f"{result!r}: it cannot be a result")
                address = lib.sw_stack_at(result._stack._open(), result.depth)
            check(lib.sw_stack_return(self._open(), number, address))
            self._forget(number)

    def register(
        self,
        target: StackBlock,
        offset: SupportsIndex = 0,
        *,
        kept_in: StackBlock | None = None,
        kept_at: SupportsIndex = 0,
    ) -> StackPointer:
        """Makes a pointer into a block, which follows when the stack moves.

        Args:
            target: a block of this stack.
            offset: of the byte to which it points.
            kept_in: a block of this stack in whose bytes it is kept, so that it moves along and
                ends with that block; None: it is kept outside, until `unregister`.
            kept_at: of its 8 bytes in that block, a multiple of 8.

        Raises:
            InvalidError: an offset outside of its block, or a block of another stack.
            StateError: one of the blocks is released.
        """
        _lib.check_type(target, StackBlock, "target")
        _lib.check_type(kept_in, (StackBlock, type(None)), "kept_in")
        to = _lib.as_index(offset, "offset", target.size_bytes - 1)
        at = _lib.as_index(kept_at, "kept_at")
        with self._lock:
            if target._stack is not self or (kept_in is not None and kept_in._stack is not self):
                raise InvalidError("a block of another stack; register it there")
            if kept_in is not None and (at % 8 or at + 8 > kept_in.size_bytes):
                raise InvalidError(
                    f"a pointer at {at} of {kept_in!r}: 8 bytes from a multiple of 8"
                )
            pointer = StackPointer._make(target, to, kept_in, at)
            still = [block._views.taken() for block in (target, kept_in) if block is not None]
            try:  # neither block moves while its address is used
                slot, place = pointer._slot(), ffi.cast("char *", target._locate()) + to
                slot[0] = ffi.cast("void *", place)
                check(lib.sw_stack_register(self._open(), slot))
            finally:
                for life in still:
                    life.end()
            pointer._registered = True
            self._pointers.append(pointer)
            return pointer

    @contextmanager
    def frame(self) -> Iterator[int]:
        """`with stack.frame() as mark:` gives up at the end what was pushed in between.

        Raises:
            BlockBusyError: a view of such a block is alive at the end.
            EscapeError: as `release`.
        """
        mark = self.depth
        try:
            yield mark
        finally:
            self.release(mark)

    def _refuse_views(self, blocks: list[StackBlock], what: str) -> None:
        alive = sum(block._views.alive for block in blocks)
        refuse_views(alive, "blocks of the stack", f"the stack {what}")

    def _forget(self, mark: int) -> None:
        while self._blocks and self._blocks[-1].depth >= mark:
            self._blocks.pop()._released = True
        for pointer in self._pointers:
            kept_in = pointer._kept_in
            pointer._registered = kept_in is None or not kept_in._released
        self._pointers = [pointer for pointer in self._pointers if pointer._registered]

    # --- the whole ---

    def trim(self) -> None:
        """Gives memory back that is not needed for what is pushed.

        Raises:
            BlockBusyError: the stack has to move, and a view of a block is alive.
            OutOfMemoryError: there is no memory for a smaller block.
        """
        with self._lock:
            if self._growth == "copy":
                self._refuse_views(self._blocks, "moves")
            check(lib.sw_stack_trim(self._open()))

    def stats(self) -> StackStats:
        """All figures at one moment."""
        return StackStats(**_lib.struct_dict(self._output(lib.sw_stack_get_stats)))

    def verify(self) -> None:
        """Compares the stack with itself.

        Raises:
            SpanwiseError: a rule does not hold; the message has it.
        """
        self._checked(lib.sw_stack_verify)

    def __repr__(self) -> str:
        if self._c is None:
            return f"<Stack, {self._growth}, closed>"
        stats = self.stats()
        return f"<Stack, {self._growth}: {stats.depth:,} of {stats.held_bytes:,} B pushed>"
