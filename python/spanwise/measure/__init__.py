# SPDX-License-Identifier: Apache-2.0
"""Measurements with real memory: replays, programs under the preloaded malloc, other allocators.

Public, as names of `spanwise`: `replay`, `Replay`, `run`, `RunResult`, `ProcessLedger`,
`compare_peers`, `PeerComparison`, `check_ledger` and `LedgerCheck`.
"""
