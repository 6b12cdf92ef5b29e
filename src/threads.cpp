// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

#include "threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace
{

/// Looks at memory before a thread sleeps: loops follow each other within some 10 us.
constexpr int kLooks = 4000;
constexpr int kMostThreads = 256;
constexpr uint64_t kLeft = 0xffffffff;
constexpr auto kRelaxed = std::memory_order_relaxed;

inline void rest()
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile ("yield");
#endif
}

class Pool
{
public:
  bool run(
    int64_t count, int64_t at_once, int threads, void (* each)(void *, int64_t, int64_t),
    void * context)
  {
    std::unique_lock<std::mutex> busy(busy_, std::try_to_lock);
    const int64_t parts = (count + at_once - 1) / at_once;
    if (!busy || parts > int64_t{kLeft}) {
      return false;
    }
    for (; started_ < threads - 1; ++started_) {
      std::thread([this, number = started_] {work(number);}).detach();
    }
    each_.store(each, kRelaxed);
    context_.store(context, kRelaxed);
    count_.store(count, kRelaxed);
    at_once_.store(at_once, kRelaxed);
    parts_.store(parts, kRelaxed);
    threads_.store(threads, kRelaxed);
    done_.store(0, kRelaxed);
    const uint64_t turn = (state_.load(kRelaxed) >> 32) + 1;
    state_ = turn << 32 | static_cast<uint64_t>(parts);
    if (asleep_) {
      std::lock_guard<std::mutex> lock(mutex_);
      wake_.notify_all();
    }
    take_parts(turn);
    for (int look = 0; done_.load(std::memory_order_acquire) < parts; ++look) {
      if (look < kLooks) {
        rest();
      } else {
        std::this_thread::yield();
      }
    }
    return true;
  }

private:
  /// Take parts of a turn while some are left: many at first, so that they lie together.
  ///
  /// What a turn consists of is changed only when all its parts are done, so that it is as it was
  /// read here if a part could be taken.
  void take_parts(uint64_t turn)
  {
    const auto each = each_.load(kRelaxed);
    void * const context = context_.load(kRelaxed);
    const int64_t count = count_.load(kRelaxed), at_once = at_once_.load(kRelaxed),
      parts = parts_.load(kRelaxed), share = 2 * threads_.load(kRelaxed);
    uint64_t state = state_.load(std::memory_order_acquire);
    while (state >> 32 == (turn & kLeft) && (state & kLeft)) {
      const int64_t left = state & kLeft, some = std::max<int64_t>(1, left / share);
      if (state_.compare_exchange_weak(state, state - some, std::memory_order_acq_rel)) {
        const int64_t begin = (parts - left) * at_once;
        each(context, begin, std::min(count, begin + some * at_once));
        done_.fetch_add(some, std::memory_order_release);
        state = state_.load(std::memory_order_acquire);
      }
    }
  }

  void work(int number)
  {
    for (int look = 0; ; ) {
      const uint64_t state = state_.load(std::memory_order_acquire);
      if ((state & kLeft) && number < threads_.load(kRelaxed) - 1) {
        take_parts(state >> 32);
        look = 0;
      } else if (look < kLooks) {
        rest();
        ++look;
      } else {
        std::unique_lock<std::mutex> lock(mutex_);
        ++asleep_;
        wake_.wait(lock, [this, state] {return state_ != state;});
        --asleep_;
        look = 0;
      }
    }
  }

  std::mutex busy_, mutex_;
  std::condition_variable wake_;
  std::atomic<int> asleep_{0};
  int started_ = 0;
  std::atomic<void (*)(void *, int64_t, int64_t)> each_{nullptr};
  std::atomic<void *> context_{nullptr};
  std::atomic<int64_t> count_{0}, at_once_{1}, parts_{0};
  std::atomic<int> threads_{0};
  /// The number of a turn, and how many of its parts are left to take; how many are done.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> done_{0};
};

Pool * the_pool;

Pool & pool()
{
  // Never taken down: threads sleep in it until the process ends.  A forked child has no threads.
  static const bool made = [] {
      the_pool = new Pool;
      pthread_atfork(nullptr, nullptr, [] {the_pool = new Pool;});
      return true;
    }();
  static_cast<void>(made);
  return *the_pool;
}

}  // namespace

void parallel(
  int64_t count, int64_t at_once, int threads,
  void (* each)(void * context, int64_t begin, int64_t end), void * context)
{
  const int64_t parts = (count + at_once - 1) / at_once;
  const int useful = static_cast<int>(std::min<int64_t>({threads, parts, kMostThreads}));
  if (useful < 2 || !pool().run(count, at_once, useful, each, context)) {
    each(context, 0, count);
  }
}
