// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

#include "lanes_neon.h"
#include "kernels_of_lanes.h"

const Kernels * neon_kernels()
{
  static const Kernels found = KERNELS("neon");
  return &found;
}
