// SPDX-License-Identifier: Apache-2.0
// Gathering primary weights and dispatching tokens over MPI, in FP8 and in BF16, by turns in one process a rank:
//   mpirun -n 2 bench_param [--smoke]
// Time is the slowest rank's; the ratio is the median of pairs.
#include <fp8_mpi/fp8_mpi.h>
#include <mpi.h>

#include <functional>

#include "ranks.h"

namespace {

using namespace bench_ranks;

bool g_smoke;

double timed(const std::function<void()> &body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  body();
  double spent = MPI_Wtime() - begin, slowest = 0;
  MPI_Allreduce(&spent, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

void report(const char *what, double bytes, const std::function<void()> &fp8, const std::function<void()> &bf16) {
  std::vector<double> a, b, ratio;
  fp8();
  bf16();
  for (int i = 0; i < (g_smoke ? 2 : 9); ++i) {
    a.push_back(timed(fp8));
    b.push_back(timed(bf16));
    ratio.push_back(a.back() / b.back());
  }
  for (auto *v : {&a, &b, &ratio}) std::sort(v->begin(), v->end());
  const size_t m = a.size() / 2;
  if (g_rank == 0)
    std::printf("| %s | %.0f | %.2f | %.2f | %.2f (%.2f-%.2f) |\n", what, bytes * 1e-6, a[m] * 1e3, b[m] * 1e3,
                ratio[m], ratio[a.size() / 4], ratio[a.size() * 3 / 4]);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  g_abort = [] { MPI_Abort(MPI_COMM_WORLD, 1); };
  g_smoke = argc > 1 && !std::strcmp(argv[1], "--smoke");
  fp8_context_config config;
  FP8_INIT(&config);
  config.backend = FP8_BACKEND_CPU;
  config.threads = 1;  // a rank a core
  fp8_context *context = nullptr;
  BENCH_CHECK(fp8_context_create(&config, &context));
  g_context = context;
  if (fp8_comm_create_mpi(MPI_Comm_c2f(MPI_COMM_WORLD), 0, &g_comm) != FP8_OK) MPI_Abort(MPI_COMM_WORLD, 1);
  const struct {
    const char *name;
    int32_t preset;
  } weights[] = {{"tensor", FP8_PRESET_TENSOR},
                 {"block", FP8_PRESET_BLOCK},
                 {"mx_w2d", FP8_PRESET_MX_W2D},
                 {"mx (row side)", FP8_PRESET_MX}},
    tokens[] = {{"row", FP8_PRESET_ROW}, {"block", FP8_PRESET_BLOCK}, {"mx", FP8_PRESET_MX}};
  const int count = g_smoke ? 2 : 4;
  const int64_t n = g_smoke ? 128 : 4096;
  if (g_rank == 0)
    std::printf(
        "%d ranks, one thread each; %s\n\n| gather of | MB in FP8 | FP8 ms | BF16 ms | FP8 / BF16 "
        "|\n|---|---|---|---|---|\n",
        g_size, fp8_build_info());
  {
    List bf16(FP8_PRESET_NONE, count, n, n);
    for (const auto &w : weights) {
      List fp8(w.preset, count, n, n);
      report(
          w.name, double(count) * double(n) * double(n), [&] { fp8.gather(); }, [&] { bf16.gather(); });
    }
  }
  const int64_t rows = g_smoke ? 64 : 4096, hidden = g_smoke ? 256 : 8192;
  if (g_rank == 0)
    std::printf("\n| dispatch of | MB in FP8 | FP8 ms | BF16 ms | FP8 / BF16 |\n|---|---|---|---|---|\n");
  {
    Routing bf16(FP8_PRESET_NONE, rows, hidden, 2, 4);
    for (const auto &t : tokens) {
      Routing fp8(t.preset, rows, hidden, 2, 4);
      report(
          t.name, double(rows) * double(hidden) * 2, [&] { fp8.dispatch(); }, [&] { bf16.dispatch(); });
    }
  }
  fp8_comm_destroy(g_comm);
  fp8_context_destroy(context);
  MPI_Finalize();
}
