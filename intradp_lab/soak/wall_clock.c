/* Copyright 2026 The intradp_ros developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * A wall clock for some processes, which preload this: it is as many seconds ahead of the machine's
 * as the file says (a signed number of 8 bytes) that INTRADP_WALL_CLOCK names. Waits until a time
 * of the wall clock end when the machine's would; monotonic clocks are left as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Which clock a condition waits by, as glibc keeps it since 2.25. */
#define BY_MONOTONIC_CLOCK 2

static const volatile int64_t *seconds_ahead;

__attribute__((constructor)) static void open_clock(void)
{
  const char *path = getenv("INTRADP_WALL_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) {
    return;
  }
  void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (found != MAP_FAILED) {
    seconds_ahead = found;
  }
}

static time_t ahead(void)
{
  return seconds_ahead ? (time_t)*seconds_ahead : 0;
}

/* The function of that name that this one stands before: conditions have an older one, too. */
static void *next(const char *name)
{
  void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  return found ? found : dlsym(RTLD_NEXT, name);
}

static struct timespec of_machine(const struct timespec *until)
{
  struct timespec moved = *until;
  moved.tv_sec -= ahead();
  return moved;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
  static int (*real)(clockid_t, struct timespec *);
  if (!real) {
    real = next("clock_gettime");
  }
  int failed = real(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += ahead();
  }
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
  static int (*real)(struct timeval *, void *);
  if (!real) {
    real = next("gettimeofday");
  }
  int failed = real(now, zone);
  if (!failed) {
    now->tv_sec += ahead();
  }
  return failed;
}

time_t time(time_t *now)
{
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (now) {
    *now = found.tv_sec;
  }
  return found.tv_sec;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted,
                    struct timespec *left)
{
  static int (*real)(clockid_t, int, const struct timespec *, struct timespec *);
  if (!real) {
    real = next("clock_nanosleep");
  }
  if (clock != CLOCK_REALTIME || !(flags & TIMER_ABSTIME)) {
    return real(clock, flags, wanted, left);
  }
  struct timespec until = of_machine(wanted);
  return real(clock, flags, &until, left);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict wanted)
{
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!real) {
    real = next("pthread_cond_timedwait");
  }
  if (condition->__data.__wrefs & BY_MONOTONIC_CLOCK) {
    return real(condition, mutex, wanted);
  }
  struct timespec until = of_machine(wanted);
  return real(condition, mutex, &until);
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           clockid_t clock, const struct timespec *restrict wanted)
{
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
  if (!real) {
    real = next("pthread_cond_clockwait");
  }
  if (clock != CLOCK_REALTIME) {
    return real(condition, mutex, clock, wanted);
  }
  struct timespec until = of_machine(wanted);
  return real(condition, mutex, clock, &until);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex,
                            const struct timespec *restrict wanted)
{
  static int (*real)(pthread_mutex_t *, const struct timespec *);
  if (!real) {
    real = next("pthread_mutex_timedlock");
  }
  struct timespec until = of_machine(wanted);
  return real(mutex, &until);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict wanted)
{
  static int (*real)(sem_t *, const struct timespec *);
  if (!real) {
    real = next("sem_timedwait");
  }
  struct timespec until = of_machine(wanted);
  return real(semaphore, &until);
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock,
                  const struct timespec *restrict wanted)
{
  static int (*real)(sem_t *, clockid_t, const struct timespec *);
  if (!real) {
    real = next("sem_clockwait");
  }
  if (clock != CLOCK_REALTIME) {
    return real(semaphore, clock, wanted);
  }
  struct timespec until = of_machine(wanted);
  return real(semaphore, clock, &until);
}
