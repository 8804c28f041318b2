# SPDX-License-Identifier: Apache-2.0
"""A stack allocator: bytes are pushed, and released down to a mark (docs/design/stack.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, SupportsIndex

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Count, Made, Owner, Viewed, end_body, refuse_views, view_at
from spanwise.errors import InvalidError, StateError
from spanwise.results.rows import Result

GROWTHS = ("copy", "chain")
"""How a stack grows, in the order of sw_stack_growth."""


@dataclass(frozen=True)
class StackStats(Result):
    """The counters of a stack.

    Attributes:
        depth: pushed bytes.
        held_bytes: bytes of all blocks.
        blocks: number of blocks.
        growths: blocks that were added, or copied into, after the first.
        copied_bytes: bytes copied by growth and by trims.
        relocated: registered pointers that growth and trims have updated.
        registered: pointers that are registered now.
        slack_bytes: unused bytes at the ends of a chain's lower blocks.
    """

    depth: int
    held_bytes: int
    blocks: int
    growths: int
    copied_bytes: int
    relocated: int
    registered: int
    slack_bytes: int


class StackBlock(Viewed):
    """The bytes of one push, identified by depth, so that it stays valid when the stack moves."""

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
        """Bytes of the stack below the block."""
        return self._depth

    @property
    def size_bytes(self) -> int:
        """The requested size."""
        return self._size

    @property
    def released(self) -> bool:
        """Whether it was released, by a mark below it or with the stack."""
        return self._released

    @property
    def address(self) -> int:
        """Current address of the first byte. Growth by copy changes it.

        Raises:
            StateError: the block was released.
        """
        with self._stack._lock:
            return int(ffi.cast("uintptr_t", self._locate()))

    def _locate(self) -> Any:
        c_stack = self._stack._open()
        if self._released:
            raise StateError(f"{self!r}: it was released; push another")
        return lib.sw_stack_at(c_stack, self._depth)

    def view(self) -> memoryview:
        """Return the bytes, without a copy; while the view is alive, the block stays where it is.

        `np.asarray(block)` and, from Python 3.12, `memoryview(block)` do the same.

        Raises:
            StateError: the block was released.
        """
        with self._stack._lock:
            life = self._views.taken(self._stack._life)  # pins the block from here on
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
    """A registered pointer into a stack, which growth by copy updates to follow its target.

    It is stored outside the stack, or in the bytes of a block (`Stack.register`). It points into
    one block: once that block is released, the pointer raises StateError, even if another block
    has been pushed at that depth.
    """

    __slots__ = ("__weakref__", "_kept_at", "_kept_in", "_offset", "_own", "_registered", "_target")
    _maker = "Stack.register"

    def _set(self, target: StackBlock, offset: int, slot: StackBlock | None, at: int) -> None:
        self._kept_in, self._kept_at = slot, at
        self._own = ffi.new("void **") if slot is None else None
        self._target = target
        self._offset = offset
        self._registered = False

    @property
    def target(self) -> StackBlock:
        """The block that it points into."""
        return self._target

    @property
    def offset(self) -> int:
        """Offset of the target byte in the block."""
        return self._offset

    @property
    def registered(self) -> bool:
        """Whether it is registered; `unregister` and the release of its storing block end that."""
        return self._registered

    def _slot(self) -> Any:
        """Return the address at which the pointer is stored."""
        if self._kept_in is None:
            return self._own
        return ffi.cast("void **", ffi.cast("char *", self._kept_in._locate()) + self._kept_at)

    @property
    def address(self) -> int:
        """The address that it holds now.

        Raises:
            StateError: it is not registered.
        """
        with self.target._stack._lock:
            slot = self._slot() if self._registered else None
            if slot is None or not self._registered:  # a __del__ may have unregistered it
                raise StateError(f"{self!r}: register another")
            return int(ffi.cast("uintptr_t", slot[0]))

    def view(self) -> memoryview:
        """Return the bytes from its target to the end of the block, without a copy.

        Raises:
            StateError: the block was released, the pointer is not registered, or the bytes that
                store it were overwritten.
        """
        with self.target._stack._lock:
            view = self.target.view()[self.offset :]
            if self.address != self.target.address + self.offset:
                raise StateError(f"{self!r}: the bytes that store it were overwritten")
            return view

    def unregister(self) -> None:
        """Unregister the pointer; it no longer follows the stack.

        Raises:
            StateError: it is not registered.
        """
        stack = self.target._stack
        with stack._lock:
            if not self._registered:
                raise StateError(f"{self!r}: it is already unregistered")
            check(lib.sw_stack_unregister(stack._open(), self._slot()))
            self._registered = False
            stack._pointers = [pointer for pointer in stack._pointers if pointer is not self]

    def __repr__(self) -> str:
        state = "" if self._registered else ", unregistered"
        return f"<StackPointer to byte {self.offset:,} of {self.target!r}{state}>"


class Stack(Owner):
    """A stack allocator: blocks are pushed one by one, and released in one step down to a mark.

    A stack begins with 2 KiB and doubles: by copy, which moves all bytes to a larger block, or as a
    chain of blocks. A released block raises StateError; while a view of a block is alive, a call
    that would move or release the block raises BlockBusyError. After `close`, every call raises
    StateError.

    >>> with Stack() as stack, stack.frame():
    ...     row = stack.push(100)
    ...     row.view()[:5] = b"hello"

    Args:
        growth: "copy" (the stack moves) or "chain" (of blocks).
        first_bytes: size of the first block, a multiple of 16.
        limit_bytes: limit of the bytes of all blocks, a multiple of 16.
        checked: `release` raises EscapeError if a registered pointer would outlive its
            target, and overwrites released bytes.

    Raises:
        InvalidError: an argument is not within these limits.
    """

    def __init__(
        self,
        *,
        growth: str = "copy",
        first_bytes: SupportsIndex = 2 << 10,
        limit_bytes: SupportsIndex = 1 << 30,
        checked: bool = False,
    ) -> None:
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
        self._pointers: list[StackPointer] = []  # C updates them when the stack moves
        super().__init__(c_stack, lib.sw_stack_destroy)

    @property
    def growth(self) -> str:
        """How the stack grows: "copy" or "chain"."""
        return self._growth

    def _refuse_close(self) -> None:
        self._refuse_views(self._blocks, "ends")
        self._forget(0)
        for pointer in self._pointers:
            pointer._registered = False
        self._pointers.clear()

    # --- blocks ---

    def push(self, size: SupportsIndex) -> StackBlock:
        """Push bytes, which are not zeroed.

        Raises:
            StackOverflowError: the stack would need more than limit_bytes.
            InvalidError: size is 0 or negative.
            BlockBusyError: the stack has to move, and a view of a block is alive.
            OutOfMemoryError: no memory for another block.
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
        """Pushed bytes, each block rounded up to 16. This is a mark for `release`."""
        with self._lock:
            return int(lib.sw_stack_depth(self._open()))

    def release(self, mark: SupportsIndex, *, result: StackBlock | None = None) -> None:
        """Release all blocks above the mark.

        Args:
            mark: an earlier value of `depth`.
            result: a block that must outlive the release.

        Raises:
            EscapeError: the result is above the mark; or, in a checked stack, a registered pointer
                would outlive its target.
            StateError: the mark is above the current depth.
            InvalidError: the mark is not the depth of a block.
            BlockBusyError: a view of a block above the mark is alive.
        """
        _lib.check_type(result, (StackBlock, type(None)), "result")
        number = _lib.as_index(mark, "mark")
        with self._lock:
            self._refuse_views([b for b in self._blocks if b.depth >= number], "is released")
            if number < self.depth and all(b.depth != number for b in self._blocks):
                raise InvalidError(f"mark {number} is inside a block; use an earlier depth")
            address = ffi.NULL
            if result is not None:
                if result.released:
                    raise StateError(f"{result!r}: it was released, so it cannot be a result")
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
        """Register a pointer into a block, which is updated when the stack moves.

        Args:
            target: a block of this stack.
            offset: offset of the target byte.
            kept_in: a block of this stack that stores the pointer, which then moves and ends with
                that block; None: it is stored outside the stack, until `unregister`.
            kept_at: offset of the pointer in that block, a multiple of 8.

        Raises:
            InvalidError: an offset is outside its block, or a block belongs to another stack.
            StateError: one of the blocks was released.
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
        """Release what the body of a `with` statement pushes: `with stack.frame() as mark:`.

        Raises:
            BlockBusyError: a view of such a block is alive at the end.
            EscapeError: as in `release`.
        """
        mark, failed = self.depth, True
        try:
            yield mark
            failed = False
        finally:
            end_body(lambda: self.release(mark), failed)

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

    # --- maintenance ---

    def trim(self) -> None:
        """Return memory that the pushed bytes do not need.

        Raises:
            BlockBusyError: the stack has to move, and a view of a block is alive.
            OutOfMemoryError: no memory for a smaller block.
        """
        with self._lock:
            if self._growth == "copy":
                self._refuse_views(self._blocks, "moves")
            check(lib.sw_stack_trim(self._open()))

    def stats(self) -> StackStats:
        """Return a snapshot of the counters."""
        return StackStats(**_lib.struct_dict(self._output(lib.sw_stack_get_stats)))

    def verify(self) -> None:
        """Check all invariants.

        Raises:
            SpanwiseError: an invariant is violated; the message names it.
        """
        self._checked(lib.sw_stack_verify)

    def __repr__(self) -> str:
        if self._c is None:
            return f"<Stack, {self._growth}, closed>"
        stats = self.stats()
        return f"<Stack, {self._growth}: {stats.depth:,} of {stats.held_bytes:,} B pushed>"
