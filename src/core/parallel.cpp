// SPDX-License-Identifier: Apache-2.0
#include "core/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <list>
#include <mutex>
#include <thread>

#include "core/fpcontrol.h"

namespace fp8 {

namespace {

struct Job {
  void (*body)(void *, int64_t, int64_t);
  void *arg;
  int64_t n, grain;
  int32_t helpers_left;  // guarded by the pool's mutex
  int32_t running = 0;   // helpers inside, guarded by the pool's mutex
  std::atomic<int64_t> next{0};

  void work() {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= n) return;
      body(arg, begin, std::min(begin + grain, n));
    }
  }
};

class Pool {
 public:
  void run(Job &job) {
    const int32_t helpers = job.helpers_left;  // a helper counts it down from here on
    {
      std::lock_guard<std::mutex> lock(mutex_);
      grow(helpers);
      jobs_.push_back(&job);
    }
    if (helpers == 1)
      wake_.notify_one();
    else
      wake_.notify_all();
    job.work();
    std::unique_lock<std::mutex> lock(mutex_);
    jobs_.remove(&job);
    done_.wait(lock, [&] { return job.running == 0; });
  }

 private:
  void grow(int32_t helpers) {  // a thread that cannot be made is done without: the caller works alone
    while (workers_ < helpers) {
      try {
        std::thread([this] { serve(); }).detach();
      } catch (...) {
        return;
      }
      ++workers_;
    }
  }

  Job *pick() {
    for (Job *job : jobs_)
      if (job->helpers_left > 0 && job->next.load(std::memory_order_relaxed) < job->n) return job;
    return nullptr;
  }

  void serve() {
    FpControl control;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      Job *job = nullptr;
      wake_.wait(lock, [&] { return (job = pick()) != nullptr; });
      --job->helpers_left;
      ++job->running;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->running == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::list<Job *> jobs_;
  int32_t workers_ = 0;
};

// Never destroyed: workers outlive static destructors. A forked child has no workers and perhaps a locked mutex, so it
// starts a pool of its own.
std::atomic<Pool *> g_pool{nullptr};

Pool &pool() {
  Pool *current = g_pool.load(std::memory_order_acquire);
  if (current) return *current;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { pthread_atfork(nullptr, nullptr, [] { g_pool.store(nullptr); }); });
  Pool *fresh = new Pool;
  if (g_pool.compare_exchange_strong(current, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *current;
}

int32_t cgroup_limit() {  // cgroup v2 quota, rounded up; 0 = none
  std::FILE *file = std::fopen("/sys/fs/cgroup/cpu.max", "r");
  if (!file) return 0;
  long quota = 0, period = 0;
  const int read = std::fscanf(file, "%ld %ld", &quota, &period);
  std::fclose(file);
  return read == 2 && period > 0 ? static_cast<int32_t>((quota + period - 1) / period) : 0;
}

}  // namespace

int32_t hardware_threads() {
  static const int32_t count = [] {
    cpu_set_t set;
    int32_t threads = static_cast<int32_t>(std::thread::hardware_concurrency());
    if (sched_getaffinity(0, sizeof set, &set) == 0) threads = CPU_COUNT(&set);
    const int32_t limit = cgroup_limit();
    if (limit > 0) threads = std::min(threads, limit);
    return std::max(threads, 1);
  }();
  return count;
}

void parallel_for(int32_t threads, int64_t n, void (*body)(void *arg, int64_t begin, int64_t end), void *arg) {
  if (n <= 0) return;
  if (threads <= 0) threads = hardware_threads();
  threads = static_cast<int32_t>(std::min<int64_t>(threads, n));
  if (threads == 1) return body(arg, 0, n);
  Job job;
  job.body = body;
  job.arg = arg;
  job.n = n;
  job.grain = std::max<int64_t>(1, n / (int64_t{threads} * 8));  // some slack for uneven cores
  job.helpers_left = threads - 1;
  pool().run(job);
}

}  // namespace fp8
