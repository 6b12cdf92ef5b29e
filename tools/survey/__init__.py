# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Split the architectures of public model zoos and check that the results stay exact."""
