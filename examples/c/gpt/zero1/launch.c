/* SPDX-License-Identifier: Apache-2.0 */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "../../common/clock.h"
#include "../../common/option.h"

enum { MOST_RANKS = 64, GRACE = 15 /* seconds beyond the timeout */, SKIPPED = 77 };

const char transport_help[] =
    "gpt_zero1: the GPT, data parallel with a ZeRO-1 AdamW: masters and moments are sharded. Starts its own ranks\n"
    "\n"
    "  --ranks N         processes (default 1): with --device cpu they talk through sockets; with --device cuda\n"
    "                    rank r takes device r (cuda:N: device N + r), and they talk through NCCL\n"
    "  --timeout S       a rank that waits longer than so many seconds for another one gives up (default 60)\n";

static int ranks = 1, seconds = 60;

int transport_begin(int *count, char ***arguments) {
  (void)count, (void)arguments;
  option_program = "gpt_zero1";
  return 0;
}

int transport_option(const char *name, const char *value) {
  if (option_is("--ranks", name, value))
    ranks = (int)option_integer(name, value, 1, MOST_RANKS);
  else if (option_is("--timeout", name, value))
    seconds = (int)option_integer(name, value, 1, 86400);
  else
    return 0;
  return 1;
}

static void tell(int rank, int status, double after) {
  if (WIFSIGNALED(status))
    fprintf(stderr, "rank %d was killed by signal %d after %.1f s\n", rank, WTERMSIG(status), after);
  else if (WEXITSTATUS(status) && WEXITSTATUS(status) != SKIPPED)
    fprintf(stderr, "rank %d ended with status %d after %.1f s\n", rank, WEXITSTATUS(status), after);
}

/* Of the process that started the ranks: when one fails, the others have the timeout to notice it by themselves. */
static int watch(const pid_t *children) {
  int left = ranks, worst = 0, skipped = 0, done[MOST_RANKS] = {0};
  double start = seconds_now(), failed = 0.0;
  while (left) {
    for (int r = 0; r < ranks; ++r) {
      int status;
      if (done[r] || waitpid(children[r], &status, WNOHANG) != children[r]) continue;
      done[r] = 1;
      --left;
      int bad = WIFSIGNALED(status) || WEXITSTATUS(status);
      skipped |= !WIFSIGNALED(status) && WEXITSTATUS(status) == SKIPPED;
      if (bad && failed == 0.0) failed = seconds_now();
      tell(r, status, seconds_now() - start);
      worst |= bad;
    }
    for (int r = 0; failed > 0.0 && seconds_now() - failed > seconds + GRACE && r < ranks; ++r)
      if (!done[r]) {
        fprintf(stderr, "rank %d did not notice in %d s\n", r, seconds + GRACE);
        kill(children[r], SIGKILL);
      }
    usleep(10000);
  }
  return skipped ? SKIPPED : worst;
}

static void join(Launch *l, int (*pairs)[MOST_RANKS], int rank) {
  l->sockets = malloc((size_t)ranks * sizeof *l->sockets);
  REQUIRE(l->sockets, "out of memory");
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b)
      if (a != b && a != rank) close(pairs[a][b]);
  for (int r = 0; r < ranks; ++r) {
    l->sockets[r] = r == rank ? -1 : pairs[rank][r];
    if (r != rank && fcntl(l->sockets[r], F_SETFL, O_NONBLOCK)) fail("a socket: %s", strerror(errno));
  }
}

/* Why this rank's device is of no use, or NULL. */
static const char *missing(const Options *o, Launch *l) {
  fp8_context_config config;
  fp8_context *context;
  fp8_error error;
  if (o->place.backend == FP8_BACKEND_CPU) return NULL;
  FP8_INIT(&config);
  config.backend = o->place.backend;
  config.device = o->place.device;
  FP8_INIT(&error);
  if (fp8_context_create(&config, &context) != FP8_OK) {
    fp8_last_error(&error);
    return error.message;
  }
  const char *why = nccl_probe(l->nccl_ids);
  fp8_context_destroy(context);
  return why;
}

/* Every rank learns whether all can go on, and the ids of rank 0. */
static void agree(Transport *t, const char *why) {
  Launch *l = t->state;
  struct Hello {
    uint8_t ids[2][128], ready;
  } mine, *all = calloc((size_t)t->world, sizeof *all);
  Message *messages = calloc((size_t)t->world, sizeof *messages);
  REQUIRE(all && messages, "out of memory");
  memcpy(mine.ids, l->nccl_ids, sizeof mine.ids);
  mine.ready = why == NULL;
  for (int r = 0; r < t->world; ++r) {
    Message m = {&mine, &all[r], sizeof mine, sizeof mine};
    messages[r] = m;
  }
  if (why) fprintf(stderr, "skipped: rank %d of %d has no device: %s\n", t->rank, t->world, why);
  CHECK(socket_exchange(t, messages, NULL));
  all[t->rank] = mine;
  for (int r = 0; r < t->world; ++r)
    if (!all[r].ready) exit(SKIPPED);
  memcpy(l->nccl_ids, all[0].ids, sizeof l->nccl_ids);
  free(all);
  free(messages);
}

void transport_start(Transport *t, Options *options) {
  static int pairs[MOST_RANKS][MOST_RANKS];
  static Launch launch;
  pid_t children[MOST_RANKS];
  for (int a = 0; a < ranks; ++a)
    for (int b = a + 1; b < ranks; ++b) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) fail("no sockets for %d ranks: %s", ranks, strerror(errno));
      pairs[a][b] = ends[0];
      pairs[b][a] = ends[1];
    }
  fflush(NULL);
  pid_t parent = getpid();
  int rank = 0;
  for (; rank < ranks; ++rank) {
    children[rank] = fork(); /* before any thread, and before CUDA: neither survives it */
    if (children[rank] < 0) fail("cannot start rank %d: %s", rank, strerror(errno));
    if (!children[rank]) break;
  }
  if (rank == ranks) {
    for (int a = 0; a < ranks; ++a)
      for (int b = 0; b < ranks; ++b)
        if (a != b) close(pairs[a][b]);
    exit(watch(children));
  }
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives the program */
  if (getppid() != parent) exit(1);
#endif
  (void)parent;
  signal(SIGPIPE, SIG_IGN);
  t->rank = rank;
  t->world = ranks;
  t->state = &launch;
  t->timeout_ms = 1000 * (int64_t)seconds;
  join(&launch, pairs, rank);
  options->place.device += options->place.backend == FP8_BACKEND_CPU ? 0 : rank;
  agree(t, missing(options, &launch));
}

void transport_open(Transport *t, const Session *session) {
  if (session->options.place.backend == FP8_BACKEND_CPU)
    socket_open(t);
  else
    nccl_open(t, session);
}

void transport_end(void) {}
