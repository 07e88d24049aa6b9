/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

typedef struct Worker {
  Pool *pool;
  pthread_t thread;
  int index;
} Worker;

struct Pool {
  int threads;
  Worker *workers; /* the caller is thread 0; workers are 1 .. threads-1 */
  pthread_mutex_t lock;
  pthread_cond_t start, done;
  uint64_t round; /* counts pool_run calls: a worker that sees a new number has work */
  int running, stop;
  int64_t items;
  PoolTask task;
  void *argument;
};

/* Equal contiguous shares. What an item computes never depends on who computes it, so results equal for any thread
 * count. */
static void run_share(Pool *pool, int index) {
  int64_t begin = pool->items * index / pool->threads, end = pool->items * (index + 1) / pool->threads;
  if (begin < end) pool->task(pool->argument, begin, end, index);
}

static void *worker_main(void *argument) {
  Worker *worker = argument;
  Pool *pool = worker->pool;
  uint64_t seen = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (!pool->stop && pool->round == seen) pthread_cond_wait(&pool->start, &pool->lock);
    if (pool->stop) break;
    seen = pool->round;
    pthread_mutex_unlock(&pool->lock);
    run_share(pool, worker->index);
    pthread_mutex_lock(&pool->lock);
    if (--pool->running == 0) pthread_cond_signal(&pool->done);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

Pool *pool_create(int threads) {
  if (threads <= 0) threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (threads < 1) threads = 1;
  Pool *pool = calloc(1, sizeof *pool);
  REQUIRE(pool, "out of memory");
  pool->threads = threads;
  pool->workers = calloc((size_t)threads, sizeof *pool->workers);
  REQUIRE(pool->workers, "out of memory");
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->start, NULL);
  pthread_cond_init(&pool->done, NULL);
  for (int i = 1; i < threads; ++i) {
    pool->workers[i].pool = pool;
    pool->workers[i].index = i;
    REQUIRE(!pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i]), "cannot start a thread");
  }
  return pool;
}

int pool_threads(const Pool *pool) { return pool->threads; }

void pool_run(Pool *pool, int64_t items, PoolTask task, void *argument) {
  pthread_mutex_lock(&pool->lock);
  pool->items = items;
  pool->task = task;
  pool->argument = argument;
  pool->running = pool->threads - 1;
  ++pool->round;
  pthread_cond_broadcast(&pool->start);
  pthread_mutex_unlock(&pool->lock);
  run_share(pool, 0);
  pthread_mutex_lock(&pool->lock);
  while (pool->running) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

void pool_destroy(Pool *pool) {
  if (!pool) return;
  pthread_mutex_lock(&pool->lock);
  pool->stop = 1;
  pthread_cond_broadcast(&pool->start);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 1; i < pool->threads; ++i) pthread_join(pool->workers[i].thread, NULL);
  pthread_cond_destroy(&pool->start);
  pthread_cond_destroy(&pool->done);
  pthread_mutex_destroy(&pool->lock);
  free(pool->workers);
  free(pool);
}
