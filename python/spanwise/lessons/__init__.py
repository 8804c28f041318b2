# SPDX-License-Identifier: Apache-2.0
"""Runnable examples of what articles about memory measured (docs/design/lesson.md).

    articles     growth of arrays, blocks of requests, claims of the articles and our verdicts
    cases        the articles' benchmarks on a heap, in C
    placement    fragmentation of placement policies, Robson's adversary, drag
    service      a message server in C, without Python's overhead: arenas, heaps, pools, collector

A module is loaded when it is first used: `sw.lessons.placement.study()`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
