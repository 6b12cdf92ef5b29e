# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Nodes that serve models, and that ask for them."""
