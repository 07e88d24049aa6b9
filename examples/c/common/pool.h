/* SPDX-License-Identifier: Apache-2.0 */
/* A handful of threads for the examples' own loops (libfp8 brings its own pool for its calls). */
#ifndef EXAMPLE_POOL_H
#define EXAMPLE_POOL_H
#include <stdint.h>

typedef struct Pool Pool;
/* Works on items [begin, end); `thread` is below pool_threads() and distinct among concurrent calls: it names scratch.
 */
typedef void (*PoolTask)(void *argument, int64_t begin, int64_t end, int thread);

Pool *pool_create(int threads); /* 0 = all processors */
int pool_threads(const Pool *pool);
void pool_run(Pool *pool, int64_t items, PoolTask task, void *argument); /* returns when all items are done */
void pool_destroy(Pool *pool);
#endif
