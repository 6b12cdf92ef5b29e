# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights that a device lacks come from its peers, as far as its policy lets them."""
