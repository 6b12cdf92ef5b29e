# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp model add`` on models as people have them, against the originals' own outputs."""
