# SPDX-License-Identifier: Apache-2.0
"""The prototypes of the study `limits`: what each adds to the one before.

They stand here because a weaker target names the prototype that justifies it.
"""

from __future__ import annotations

STEPS = {
    "list": "a list through the objects, no checks",
    "record-word": "one word that the cache's record points to, slots found by shift",
    "record-split": "the same, words for allocation and for frees apart",
    "word": "dense words of the whole space, found by shift",
    "split": "the same, words for allocation and for frees apart, remote word in the layout",
    "lookup": "free: frame, page map, record of the span; an address outside is found",
    "magic": "slot by multiplication; an address inside a slot is found",
    "owner": "a span of another cache is found",
    "double": "the slot's bit must be clear in both words: a double free is found",
    "transition": "lists of partial and whole spans: all that our plain free does",
    "hinted": "transition, and 16 just-freed slots remembered, their bits set",
    "sized": "size known at the free: validated by the cache's record",
    "parked": "sized, and one just-freed slot waits in the record, its bit clear",
    "store": "another's object: page map, slot, owner, bits; a plain store (not safe)",
    "messages": "a list handed over 64 at a time by one exchange, no checks",
    "bit": "store by an atomic or of which one bit is looked at",
    "fetched": "the same, the whole old word is used: a first free is announced",
    "claimed": "a freer claims a word by one atomic step; then plain stores, visible at once",
    "list-byte": "a list a class, the class of a page from one byte; no checks",
    "list-record": "class by page map and record of the span; an address outside is found",
    "list-bit": "the same, a bit a slot set at free, cleared at malloc; a double free is found",
    "list-checked": "the same; addresses inside a slot and foreign owners are found",
    "bitmap": "words instead of lists, full and partial and whole spans: ours without hints",
    "hints": "the same, a stack of 32 just-freed slots of full spans: ours",
    "hints-all": "the same, of all spans",
    "stack": "the same, 1,024 slots, full spans not marked: a free asks nothing of its span",
    "fresh": "a bump through untouched memory, small pages",
    "fresh-split": "words for allocation and for frees apart, as untouched as the objects",
    "fresh-ahead": "fresh, the kernel is asked for 64 KiB of pages at a time",
    "fresh-huge": "fresh, after madvise(MADV_HUGEPAGE) on 2 MiB boundaries",
    "fresh-split-huge": "fresh-split, its objects as fresh-huge",
    "called-list": "by the dynamic linker: map of classes, a list a class; free: page map, record",
    "called-sharded": "the same with a list a span",
    "called-split": "words for allocation and for frees apart, slot by multiplication, no checks",
    "called-double": "address outside, inside a slot, of another cache, free twice: all found",
    "called-transition": "lists of partial and whole spans, full ones marked",
    "called-hinted": "frees into full spans remembered; allocation chooses between hint and word",
    "generic-list": "cache as argument, table made at run time; a list a class, no checks",
    "generic-transition": "bitmap words, all checks, lists of spans, full ones marked",
    "generic-hinted": "frees into full spans remembered; allocation chooses between hint and word",
}
