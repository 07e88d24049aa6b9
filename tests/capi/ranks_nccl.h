/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks over NCCL, one a GPU, for ranks.h under FP8_TEST_NCCL: PROGRAM RANKS process|thread. Processes are forked
 * before any of them knows CUDA. Fewer GPUs than ranks: 77. */
#ifndef FP8_TEST_RANKS_NCCL_H
#define FP8_TEST_RANKS_NCCL_H
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kGpus = 16 };

typedef struct nccl_board { /* memory that the processes share */
  volatile int ready, done, second_ready;
  uint8_t id[128], second[128];
} nccl_board;

static struct {
  int size, processes, rank; /* rank: of this process */
  int made;                  /* groups of communicators so far */
  int runs;
  volatile sig_atomic_t mourned; /* ranks whose death is part of a test */
  nccl_board *board;
  pid_t child[kGpus];
  fp8_context *context[kGpus]; /* of threads */
  fp8_comm *comm[kGpus];
} g_nccl;

static inline int ranks_device(void) { return g_nccl.rank; }

static inline void nccl_open(const fp8_context *c, int rank) {
  if (g_nccl.comm[rank]) return;
  if (rank == 0) {
    MUST(fp8_comm_nccl_id(g_nccl.board->id));
    __atomic_store_n(&g_nccl.board->ready, g_nccl.made + 1, __ATOMIC_RELEASE);
  }
  while (__atomic_load_n(&g_nccl.board->ready, __ATOMIC_ACQUIRE) <= g_nccl.made) usleep(1000);
  MUST(fp8_comm_create_nccl_rank(c, g_nccl.board->id, rank, g_nccl.size, &g_nccl.comm[rank]));
}

static inline fp8_comm *nccl_second(const fp8_context *c, int rank) { /* once, beside the first: the caller's */
  fp8_comm *comm = NULL;
  if (rank == 0) {
    MUST(fp8_comm_nccl_id(g_nccl.board->second));
    __atomic_store_n(&g_nccl.board->second_ready, 1, __ATOMIC_RELEASE);
  }
  while (!__atomic_load_n(&g_nccl.board->second_ready, __ATOMIC_ACQUIRE)) usleep(1000);
  MUST(fp8_comm_create_nccl_rank(c, g_nccl.board->second, rank, g_nccl.size, &comm));
  return comm;
}

static inline void nccl_close(void) { /* the next run makes a new group */
  int r;
  for (r = 0; r < kGpus; ++r) {
    fp8_comm_destroy(g_nccl.comm[r]);
    g_nccl.comm[r] = NULL;
  }
  ++g_nccl.made;
}

static inline void *nccl_thread(void *arg) {
  rank_call *self = (rank_call *)arg;
  nccl_open(self->c, self->rank);
  self->comm = g_nccl.comm[self->rank];
  return rank_main(self);
}

static inline void run_ranks(const fp8_context *context, int size, void (*body)(rank_call *), void *arg) {
  rank_call calls[kGpus];
  int r;
  if (size != g_nccl.size) return;
  ++g_nccl.runs;
  memset(calls, 0, sizeof calls);
  for (r = 0; r < size; ++r) {
    fp8_context_config config;
    calls[r].rank = r;
    calls[r].size = size;
    calls[r].arg = arg;
    calls[r].body = body;
    calls[r].c = context;
    if (g_nccl.processes) continue;
    FP8_INIT(&config);
    config.backend = FP8_BACKEND_CUDA;
    config.device = r;
    if (!g_nccl.context[r]) MUST(fp8_context_create(&config, &g_nccl.context[r]));
    calls[r].c = g_nccl.context[r];
  }
  if (g_nccl.processes) {
    nccl_thread(&calls[g_nccl.rank]);
    return;
  }
  for (r = 0; r < size; ++r) CHECK(!pthread_create(&calls[r].thread, NULL, nccl_thread, &calls[r]));
  for (r = 0; r < size; ++r) pthread_join(calls[r].thread, NULL);
}

static inline void nccl_child_ended(int signal) { /* one that failed leaves its peers waiting: end them all */
  int state;
  (void)signal;
  while (waitpid(-1, &state, WNOHANG) > 0)
    if (!WIFEXITED(state) || WEXITSTATUS(state)) {
      if (WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL && g_nccl.mourned) {
        --g_nccl.mourned;
        continue;
      }
      _exit(1); /* and they die with their parent */
    }
}

static inline int nccl_has_gpus(int n) { /* asked by a child, whose CUDA ends with it */
  int state = 0;
  const pid_t child = fork();
  if (child == 0) {
    fp8_context_config config;
    fp8_context *c = NULL;
    fp8_status status;
    FP8_INIT(&config);
    config.backend = FP8_BACKEND_CUDA;
    config.device = n - 1;
    status = fp8_context_create(&config, &c);
    if (status != FP8_OK) fprintf(stderr, "%d ranks: %s\n", n, rank_message());
    _exit(status == FP8_OK ? 0 : 77);
  }
  return child > 0 && waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

static inline void nccl_start(int argc, char **argv) {
  int r;
  g_nccl.size = argc > 1 ? atoi(argv[1]) : 2;
  g_nccl.processes = argc < 3 || strcmp(argv[2], "thread");
  if (g_nccl.size < 2 || g_nccl.size > kGpus || (argc > 2 && g_nccl.processes && strcmp(argv[2], "process"))) {
    fprintf(stderr, "usage: %s RANKS process|thread\n", argv[0]);
    exit(2);
  }
  if (!nccl_has_gpus(g_nccl.size)) exit(77);
  setenv("FP8_TEST_BACKEND", "cuda", 1);
  g_nccl.board =
      (nccl_board *)mmap(NULL, sizeof *g_nccl.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(g_nccl.board != MAP_FAILED);
  if (!g_nccl.processes) return;
  signal(SIGCHLD, nccl_child_ended);
  for (r = 1; r < g_nccl.size; ++r) {
    g_nccl.child[r] = fork();
    CHECK(g_nccl.child[r] >= 0);
    if (g_nccl.child[r]) continue;
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    g_nccl.rank = r;
    CHECK(freopen("/dev/null", "w", stdout)); /* rank 0 tells */
    break;
  }
}

static inline int nccl_end(int failed) {
  int r, alive = g_nccl.rank == 0 && g_nccl.processes;
  nccl_close();
  for (r = 0; r < kGpus; ++r) fp8_context_destroy(g_nccl.context[r]);
  while (alive) { /* until the handler has seen the last child */
    for (r = 1, alive = 0; r < g_nccl.size; ++r) alive = alive || kill(g_nccl.child[r], 0) == 0;
    usleep(1000);
  }
  if (g_nccl.rank == 0)
    printf("%d ranks as %s: %d runs\n", g_nccl.size, g_nccl.processes ? "processes" : "threads", g_nccl.runs);
  return failed || !g_nccl.runs || (g_nccl.rank == 0 && g_nccl.mourned);
}

#define RANKS_MAIN(...)                                 \
  int main(int argc, char **argv) {                     \
    const struct CMUnitTest tests[] = {__VA_ARGS__};    \
    int failed;                                         \
    nccl_start(argc, argv);                             \
    failed = cmocka_run_group_tests(tests, NULL, NULL); \
    return nccl_end(failed);                            \
  }
#endif
