# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The laboratory of intradp_ros: demos, benchmarks, emulated devices and links, networks to try.

A package of its own, which no robot needs; `make build` installs it.
"""
