# SPDX-License-Identifier: Apache-2.0
"""The study of where the resident bytes of programs go."""
