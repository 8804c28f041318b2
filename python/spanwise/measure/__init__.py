# SPDX-License-Identifier: Apache-2.0
"""What real memory shows: of replays, of programs under the malloc face, beside other allocators.

Public, as names of `spanwise`: `replay`, `Replay`, `run`, `RunResult`, `ProcessLedger`,
`compare_peers`, `PeerComparison`, `check_ledger` and `LedgerCheck`.
"""
