# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A language model on several small devices: an interleaved pipeline with offloading (LIME)."""
