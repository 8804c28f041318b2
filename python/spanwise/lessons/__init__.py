# SPDX-License-Identifier: Apache-2.0
"""What allocates, and what it costs: lessons of articles about memory, as something to run.

Public, as names of `spanwise`: `simulate_growth` and `Growth`.
"""
