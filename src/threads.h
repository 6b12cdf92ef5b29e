// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// Threads that take parts of a loop; the caller is one of them.
#pragma once

#include <cstdint>

/// Call `each(context, begin, end)` for parts of 0 .. count - 1, by up to `threads` threads.
///
/// Where the threads are at work for another caller, this one does all of it.
void parallel(
  int64_t count, int64_t at_once, int threads,
  void (* each)(void * context, int64_t begin, int64_t end), void * context);

/// The same for a callable.
template<class Function>
void parallel(int64_t count, int64_t at_once, int threads, Function && function)
{
  parallel(
    count, at_once, threads, [](void * context, int64_t begin, int64_t end) {
      (*static_cast<Function *>(context))(begin, end);
    }, &function);
}
