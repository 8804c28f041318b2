# SPDX-License-Identifier: Apache-2.0
"""Lifetime of C objects: when they are destroyed, so that nothing uses them afterwards.

A C object must outlive everything in Python that can still reach it. CPython handles a garbage
reference cycle in this order: weakref callbacks (and `weakref.finalize`); then, in no useful order,
`__del__` methods, `finally` blocks of suspended generators and coroutines, and destructors of
`ffi.gc`; then it clears the objects. Code that runs in the second step may use every object of the
cycle, so a C object may be destroyed only in the third step, where a `Life` ends.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise._lib import check, output_of

ClosableT = TypeVar("ClosableT", bound="Closable")
MadeT = TypeVar("MadeT", bound="Made")
OwnerT = TypeVar("OwnerT", bound="Owner")

_locks: weakref.WeakSet[CallLock] = weakref.WeakSet()


class Life:
    """Calls `end(*args)` once: at `end()`, or when nothing refers to it.

    A numpy array hides the call from Python's collector, which does not traverse such arrays. So
    only its reference count ends a life, when its owner is cleared. `args` are hidden, too, and
    unchanged until then. They must not refer to users' objects, because a reference cycle through
    them would never be collected.

    Nothing is destroyed at interpreter shutdown: a daemon thread may be inside a call, and the
    system reclaims all memory.
    """

    __slots__ = ("_hidden",)

    def __init__(self, end: Callable[..., object], *args: Any) -> None:
        self._hidden: Any = np.empty((), object)
        self._hidden[()] = _End(end, args)

    def end(self) -> None:
        """Ends the life now; a second call does nothing."""
        self._hidden[()].end()


class _End:
    """The call that a life makes at its end."""

    __slots__ = ("_work",)

    def __init__(self, end: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._work = [(end, args)]

    # A default argument, because module globals may be gone at interpreter shutdown.
    def end(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        try:
            end, args = self._work.pop()
        except IndexError:  # it has ended
            return
        if not is_finalizing():
            end(*args)

    __del__ = end


class Owned:
    """A C object without methods of its own; `c` is destroyed with the last reference to this."""

    __slots__ = ("_life", "c")

    def __init__(self, c_object: Any, destroy: Callable[[Any], object]) -> None:
        self.c = c_object
        self._life = Life(destroy, c_object)


class Count:
    """The number of live views of something, and a part of the count `within`."""

    __slots__ = ("_tokens", "_within")

    def __init__(self, within: Count | None = None) -> None:
        self._tokens: set[object] = set()  # any thread may add and remove without a lock
        self._within = within

    @property
    def alive(self) -> int:
        """The count."""
        return len(self._tokens)

    def taken(self, *needs: object) -> Life:
        """Counts a view until the returned life ends; `needs` are kept alive until then."""
        token = object()
        self._tokens.add(token)
        if self._within is not None:
            self._within._tokens.add(token)
        return Life(self._drop, token, *needs)

    def _drop(self, token: object, *_: object) -> None:
        self._tokens.discard(token)
        if self._within is not None:
            self._within._tokens.discard(token)


def refuse_views(
    alive: int,
    of: object,
    before: str,
    *,
    users: int = 0,
    user: tuple[str, str] = ("", ""),
    end: str = "",
) -> None:
    """Raises BlockBusyError if `alive` views of an object exist; `before` is the operation.

    Args:
        alive: number of views.
        of: the object.
        before: what is refused.
        users: number of other objects that use it.
        user: what one of them is and does, and several, as ("pool uses", "pools use").
        end: what ends them, as "close the pools".
    """
    if not alive and not users:
        return
    found, todo = [], []
    if users:
        found.append(f"{users} {user[users > 1]} {of}")
        todo.append(end)
    if alive:
        found.append(
            f"1 view of {of} is alive" if alive == 1 else f"{alive} views of {of} are alive"
        )
        todo.append("delete the arrays and memoryviews of it")
    raise errors.BlockBusyError(f"{' and '.join(found)}; before {before} {' and '.join(todo)}")


def end_body(end: Callable[[], object], failed: bool) -> None:
    """Calls `end` at the end of a `with` statement; an exception of its body takes precedence.

    The traceback of that exception refers to the variables of the body, hence to views.
    """
    try:
        end()
    except errors.BlockBusyError:
        if not failed:
            raise


class Claim:
    """The right to free something, which only one of several calls gets."""

    __slots__ = ("_rights",)

    def __init__(self) -> None:
        self._rights = [None]

    @property
    def taken(self) -> bool:
        """Whether a call has the claim."""
        return not self._rights

    def take(self) -> bool:
        """Takes the claim atomically; returns False if another call has it."""
        try:
            self._rights.pop()
        except IndexError:
            return False
        return True

    def give_back(self) -> None:
        """Undoes `take`, because the object was not freed."""
        self._rights.append(None)


class _Memory:
    """Base of the arrays that `array_at` makes."""

    __slots__ = ("__array_interface__", "_life", "owner")

    def __init__(self, interface: dict[str, Any], life: Life, owner: object) -> None:
        self.__array_interface__ = interface
        self._life = life
        self.owner = owner


class ByteView(np.ndarray[Any, np.dtype[np.uint8]]):
    """A uint8 array that also takes bytes, which numpy would parse: `view[:5] = b"hello"`."""

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, bytes) and self.dtype == np.uint8:
            place = self[index]
            if len(value) != place.size:  # a single byte would fill all of them
                count = f"{place.size:,} elements" if place.size != 1 else "1 element"
                raise ValueError(f"{len(value):,} bytes cannot be assigned to {count}")
            value = np.frombuffer(value, np.uint8).reshape(place.shape)
        super().__setitem__(index, value)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return what numpy computes of it as a plain array, as `numpy.memmap` does."""
        made = super().__array_wrap__(array, context)
        if made is self or type(self) is not ByteView:
            return made
        return made[()] if return_scalar or made.shape == () else made.view(np.ndarray)


def array_at(address: int, size: int, life: Life, owner: object = None) -> NDArray[np.uint8]:
    """Return the bytes at an address as a writable `ByteView`; `life` ends with its last view.

    `owner_of` returns `owner` for each view of them.

    `ffi.buffer` over an `ffi.gc` pointer would not work: its destructor runs before `__del__`
    methods of the same cycle, which may still read the view.
    """
    interface = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}
    return np.asarray(_Memory(interface, life, owner)).view(ByteView)


def owner_of(view: object) -> object:
    """Return the owner of the memory of an array or memoryview, as given to `array_at`, or None."""
    while isinstance(view, np.ndarray | memoryview):
        view = view.obj if isinstance(view, memoryview) else view.base
    return view.owner if isinstance(view, _Memory) else None


def view_at(address: int, size: int, life: Life) -> memoryview:
    """Return the bytes at an address as a memoryview, like `array_at`."""
    array: Any = array_at(address, size, life)
    return memoryview(array)


class CallLock:
    """A reentrant lock around the calls of a C object; it does nothing at interpreter shutdown.

    At that point a daemon thread may have been stopped while it held the lock, and would never
    release it. Only one thread still runs, so it needs no lock.

    A signal handler, or a `__del__` that Python's collector calls, may run in the middle of a call
    and close the object of the call. So the destruction of a C object is passed to
    `at_exit`, and happens when the last call has ended.

    Destructors use `soon`, which never waits. A destructor may run in a thread that holds the lock
    of another heap: Python's collector may call it there, and without the GIL a thread may free
    objects that other threads dropped. Two threads waiting like this could deadlock.
    """

    __slots__ = ("__weakref__", "_at_exit", "_depth", "_due", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._at_exit: list[Callable[[], object]] = []
        self._due: deque[Callable[[], object]] = deque()
        _locks.add(self)

    def __enter__(self) -> None:
        self._acquire(blocking=True)
        self._depth += 1
        if self._due and self._depth == 1:
            self._do_due()

    def __exit__(self, *error: object) -> None:
        self._leave()
        if self._due:
            self._try_due()

    def at_exit(self, work: Callable[[], object]) -> None:
        """Run `work` when the outermost `with` of this thread ends. The caller holds the lock."""
        self._at_exit.append(work)

    def soon(self, work: Callable[[], object]) -> None:
        """Run `work` under the lock: now, or in the thread that holds the lock, after its call.

        That thread may be this one, in the middle of a call. The holder checks for such work after
        it has released the lock, so no work is forgotten.
        """
        self._due.append(work)
        self._try_due()

    def _leave(self) -> None:
        try:
            while self._depth == 1 and self._at_exit:
                self._at_exit.pop()()
        finally:
            self._depth -= 1
            self._release()

    def _try_due(self) -> None:
        while self._due and self._acquire(blocking=False):
            if self._depth:
                self._release()
                return
            self._depth = 1
            try:
                self._do_due()
            finally:
                self._leave()

    def _do_due(self) -> None:
        with suppress(IndexError):  # a nested destructor may have done the rest
            while True:
                self._due.popleft()()

    def _acquire(self, *, blocking: bool) -> bool:
        return sys.is_finalizing() or self._lock.acquire(blocking)

    def _release(self) -> None:
        if not sys.is_finalizing():
            self._lock.release()

    def _renew(self) -> None:
        """Renew the lock in a forked child, where only the calls of the forking thread go on."""
        lock = threading.RLock()
        owned = self._lock._is_owned()  # type: ignore[attr-defined]
        self._depth = self._depth if owned else 0
        for _ in range(self._depth):
            lock.acquire()
        self._lock = lock


def _after_fork_in_child() -> None:
    for lock in list(_locks):
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Uncopied:
    """Base of objects that refer to memory of this process, whose copies could dangle.

    A second `__init__` raises TypeError, because blocks and views refer to what the first one made.
    """

    __slots__ = ()
    _made_with: ClassVar[str] = "_life"  # an attribute that `__init__` sets

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        init = vars(cls).get("__init__")
        if init is not None:

            @functools.wraps(init)
            def made_once(self: Uncopied, *arguments: Any, **options: Any) -> None:
                if hasattr(self, self._made_with):
                    raise TypeError(f"this {type(self).__name__} is made already; make another")
                init(self, *arguments, **options)

            cls.__init__ = made_once  # type: ignore[method-assign, assignment]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled: it is memory of this process"
        )


class Made(Uncopied):
    """Base of objects whose addresses come from C: only methods of other objects create them."""

    __slots__ = ()
    _maker: ClassVar[str]

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError(f"cannot create a {type(self).__name__} directly; call {self._maker}()")

    @classmethod
    def _make(cls: type[MadeT], *arguments: Any, **options: Any) -> MadeT:
        self = cls.__new__(cls)
        self._set(*arguments, **options)
        return self

    def _set(self, *arguments: Any, **options: Any) -> None:
        raise NotImplementedError


class Viewed(Made):
    """Base of blocks: numpy and, from Python 3.12, memoryview take the bytes of their `view()`."""

    __slots__ = ()

    def view(self) -> Any:
        """Return the bytes without a copy."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array: NDArray[Any] = np.asarray(self.view())
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"a view of type {np.dtype(dtype)} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __buffer__(self, flags: int, /) -> memoryview:
        return memoryview(self.view())


class Closable(Uncopied):
    """Base of objects that a `with` statement closes."""

    __slots__ = ()

    def close(self) -> None:
        """Closes the object; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self: ClosableT) -> ClosableT:
        return self

    def __exit__(self, *error: object) -> None:
        end_body(self.close, error[0] is not None)


class Owner(Closable):
    """Owns one C object until `close`, or until no reference to the owner is left.

    Every call holds the lock, so no call uses a C object that another thread is closing. After
    `close` every call raises StateError.
    """

    def __init__(self, c_object: Any, end: Callable[..., object], *needs: object) -> None:
        """Owns `c_object`; `end(c_object, *needs)` destroys it."""
        self._lock = CallLock()
        self._c: Any = c_object
        self._life = Life(end, c_object, *needs)

    def __enter__(self: OwnerT) -> OwnerT:
        with self._lock:
            self._open()
        return self

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._c is None

    def close(self) -> None:
        """Closes the object; a second call does nothing.

        Raises:
            BlockBusyError: a view of its memory is alive; nothing changes.
            OwnerError: it belongs to another thread.
        """
        with self._lock:
            if self._c is not None:
                self._refuse_close()
                self._c = None
                self._lock.at_exit(self._ending())

    def _ending(self) -> Callable[[], object]:
        """Return what destroys the C object; it has no reference to this object, to be no cycle."""
        return self._life.end

    def _refuse_close(self) -> None:
        """Raises an exception if it cannot be closed now."""

    def _open(self) -> Any:
        """Return the C object. The caller holds the lock while it uses the C object."""
        if self._c is None:
            raise errors.StateError(f"the {self._named()} is closed; make another")
        return self._c

    def _checked(self, function: Any, *arguments: Any) -> None:
        with self._lock:
            check(function(self._open(), *arguments))

    def _output(self, function: Any) -> Any:
        with self._lock:
            return output_of(function, self._open())

    def _named(self) -> str:
        return type(self).__name__
