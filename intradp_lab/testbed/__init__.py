# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The testbed: systems compared on the same link and the same devices.

Robot and server are processes with real sessions over real DDS and a shaped
link; their devices are emulated from profiles, so that the figures are those
of the profiles' hardware and not of this machine.
"""
