# SPDX-License-Identifier: Apache-2.0
"""The study of predicted beside measured resident bytes."""
