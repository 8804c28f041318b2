# SPDX-License-Identifier: Apache-2.0
"""Measurements with real memory: replays, benchmarks, programs under the preloaded malloc.

Public, as names of `spanwise`: `replay`, `Replay`, `run`, `RunResult`, `ProcessLedger`,
`bench`, `BenchResult`, `fit_cases`, `check_ledger` and `LedgerCheck`.
"""
