// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

#include "threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace
{

/// Looks at memory before a thread sleeps: products follow each other within some 10 us.
constexpr int kLooks = 4000;
constexpr int kMostThreads = 256;

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
    if (!busy) {
      return false;
    }
    const int helpers = threads - 1;
    for (; started_ < helpers; ++started_) {
      std::thread([this, number = started_] {work(number);}).detach();
    }
    each_ = each;
    context_ = context;
    count_ = count;
    at_once_ = at_once;
    next_.store(0, std::memory_order_relaxed);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      helpers_ = helpers;
      turn_.fetch_add(1, std::memory_order_release);
      if (asleep_) {
        wake_.notify_all();
      }
    }
    take_parts();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      helpers_ = 0;  // who wakes up late is not waited for
    }
    for (int look = 0; at_work_.load(std::memory_order_acquire) > 0; ++look) {
      if (look < kLooks) {
        rest();
      } else {
        std::this_thread::yield();
      }
    }
    return true;
  }

private:
  void take_parts()
  {
    while (true) {
      const int64_t begin = next_.fetch_add(at_once_, std::memory_order_relaxed);
      if (begin >= count_) {
        return;
      }
      each_(context_, begin, std::min(count_, begin + at_once_));
    }
  }

  void work(int number)
  {
    for (uint64_t seen = 0; ; ) {
      for (int look = 0; look < kLooks && turn_.load(std::memory_order_acquire) == seen; ++look) {
        rest();
      }
      bool mine;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        ++asleep_;
        wake_.wait(lock, [this, seen] {return turn_.load() != seen;});
        --asleep_;
        seen = turn_.load();
        mine = number < helpers_;
        at_work_.fetch_add(mine, std::memory_order_relaxed);
      }
      if (mine) {
        take_parts();
        at_work_.fetch_sub(1, std::memory_order_release);
      }
    }
  }

  std::mutex busy_, mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> turn_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<int> at_work_{0};
  int asleep_ = 0, helpers_ = 0, started_ = 0;
  void (* each_)(void *, int64_t, int64_t) = nullptr;
  void * context_ = nullptr;
  int64_t count_ = 0, at_once_ = 1;
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
    for (int64_t begin = 0; begin < count; begin += at_once) {
      each(context, begin, std::min(count, begin + at_once));
    }
  }
}
