# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What nodes of all systems share."""
