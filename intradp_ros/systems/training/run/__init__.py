# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A round on a device."""
