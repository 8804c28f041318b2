# SPDX-License-Identifier: Apache-2.0
"""Each part of an allocation beside what could stand in its place."""
