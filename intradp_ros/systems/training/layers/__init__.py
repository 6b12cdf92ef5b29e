# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The layers of a network that is trained: capture, profile, checkpoint."""
