// SPDX-License-Identifier: Apache-2.0
// The plan: every rank learns how many tokens come from where and which experts they are for, and lays out its groups.
// Order everywhere: source rank, then token, then slot.
#include <algorithm>
#include <memory>

#include "core/dispatch.h"
#include "core/tensor.h"

namespace fp8 {

namespace {

using ll = long long;
constexpr int32_t kMaxSlots = 32;  // a row's slots are bits of an int32

int32_t activation_scaling(const fp8_recipe &r) {
  const int32_t scaling = side_scaling(r, FP8_ROLE_ACTIVATION, FP8_SIDE_ROW);
  if (scaling == FP8_SCALING_TENSOR)
    fail(FP8_ERR_UNSUPPORTED,
         "config.recipe scales activations per tensor: the sender's amax is not the receiver's, so dispatched codes "
         "would not "
         "equal the quantized tokens of a group; use 1D scales or dispatch BF16 (preset none)");
  if (scaling == FP8_SCALING_128X128 || scaling == FP8_SCALING_32X32)
    fail(FP8_ERR_UNSUPPORTED,
         "config.recipe scales activations in %s tiles: dispatch scatters the tokens of a tile; use 1D scales",
         scaling_name(scaling));
  return scaling;
}

void check_config(const fp8_dispatch_config &config) {
  if (!config.recipe) fail(FP8_ERR_ARGUMENT, "config.recipe is NULL");
  if (config.hidden < 1) fail(FP8_ERR_ARGUMENT, "config.hidden is %lld, it must be positive", ll(config.hidden));
  if (config.tokens < 0) fail(FP8_ERR_ARGUMENT, "config.tokens is %lld, it must not be negative", ll(config.tokens));
  if (config.max_tokens < config.tokens)
    fail(FP8_ERR_ARGUMENT, "config.max_tokens is %lld, it must be at least config.tokens %lld", ll(config.max_tokens),
         ll(config.tokens));
  if (config.k < 1 || config.k > kMaxSlots)
    fail(FP8_ERR_ARGUMENT, "config.k is %d, it must be 1 to %d", config.k, kMaxSlots);
  if (config.experts_per_rank < 1)
    fail(FP8_ERR_ARGUMENT, "config.experts_per_rank is %d, it must be at least 1", config.experts_per_rank);
  if (config.reserved) fail(FP8_ERR_ARGUMENT, "config.reserved is %d, it must be 0", config.reserved);
}

uint64_t table(int64_t n) { return round_up(n * int64_t{sizeof(int32_t)}, 256); }

// What every rank tells all others before ids travel.
struct Header {
  int64_t bad, hidden, max_tokens, k, experts, alignment, scaling, dtype;
};
const char *const kFields[] = {"",
                               "hidden",
                               "max_tokens",
                               "k",
                               "experts_per_rank",
                               "row_alignment",
                               "recipe's scaling of activations",
                               "recipe's dtype of activations"};

// The ids, on the host, compact.
std::vector<int32_t> read_ids(const fp8_context &c, const fp8_dispatch_config &config, fp8_stream stream) {
  if (config.tokens == 0) return {};
  if (!config.expert_ids) fail(FP8_ERR_ARGUMENT, "config.expert_ids is NULL");
  const fp8_tensor &t = *config.expert_ids;
  check_tensor(t, "config.expert_ids", {FP8_DTYPE_I32}, 0, false);
  if (t.ndim != 2 || t.shape[0] != config.tokens || t.shape[1] != config.k)
    fail(FP8_ERR_ARGUMENT, "config.expert_ids has shape [%lld, %lld], it must be [%lld, %d]", ll(tensor_rows(t)),
         ll(tensor_cols(t)), ll(config.tokens), config.k);
  std::vector<int32_t> raw(tensor_span(t) / sizeof(int32_t)), ids(config.tokens * config.k);
  check(c.api->copy(c.self, raw.data(), t.data, raw.size() * sizeof(int32_t), stream));
  check(c.api->stream_sync(c.self, stream));
  for (int64_t i = 0; i < config.tokens; ++i)
    for (int32_t j = 0; j < config.k; ++j) ids[i * config.k + j] = raw[i * t.stride[0] + j * t.stride[1]];
  return ids;
}

void check_ids(const std::vector<int32_t> &ids, int32_t k, int64_t experts) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < -1 || ids[i] >= experts)
      fail(FP8_ERR_ARGUMENT, "config.expert_ids[%lld, %lld] is %d, it must be -1 or in [0, %lld)", ll(i / k), ll(i % k),
           ids[i], ll(experts));
}

// Tables on the host; they become one copy to the plan's memory.
struct Tables {
  std::vector<int32_t> send_token, row_source, row_slots, row_place, return_row, token_place;
};

// The first slot of token `ids` that names the same expert as slot j.
int32_t first_slot(const int32_t *ids, int32_t j) {
  for (int32_t i = 0; i < j; ++i)
    if (ids[i] == ids[j]) return i;
  return j;
}

// As the tokens' owner: what goes to each rank, and where each slot's row comes back.
void plan_sending(fp8_dispatch_plan &p, const std::vector<int32_t> &ids, Tables &t, std::vector<int32_t> &ids_out) {
  const int32_t size = p.comm->ops.size, k = p.k;
  p.sent.assign(size, 0);
  p.taken.assign(size, 0);
  t.token_place.assign(p.tokens * k, -1);
  int32_t place = 0;
  for (int32_t q = 0; q < size; ++q)
    for (int64_t i = 0; i < p.tokens; ++i) {
      const int32_t *token = &ids[i * k];
      bool goes = false;
      for (int32_t j = 0; j < k; ++j) {
        if (token[j] < 0 || token[j] / p.experts != q) continue;
        goes = true;
        const int32_t first = first_slot(token, j);
        if (first == j) {
          ++p.taken[q];
          t.token_place[i * k + j] = place++;
        } else {
          t.token_place[i * k + j] = t.token_place[i * k + first];
        }
      }
      if (!goes) continue;
      ++p.sent[q];
      t.send_token.push_back(static_cast<int32_t>(i));
      ids_out.insert(ids_out.end(), token, token + k);
    }
}

// As the experts' owner: groups, in the order of arrival, and the order of return.
void plan_groups(fp8_dispatch_plan &p, const std::vector<int32_t> &ids_in, int64_t alignment, Tables &t) {
  const int32_t size = p.comm->ops.size, rank = p.comm->ops.rank, k = p.k;
  p.group_rows.assign(p.experts, 0);
  p.group_ends.assign(p.experts, 0);
  p.returned.assign(size, 0);
  const auto each = [&](auto &&body) {  // body(source, received row, slot, local expert), first slots only
    int64_t row = 0;
    for (int32_t s = 0; s < size; ++s)
      for (int64_t i = 0; i < p.received[s]; ++i, ++row)
        for (int32_t j = 0; j < k; ++j) {
          const int32_t *token = &ids_in[row * k];
          if (token[j] >= 0 && token[j] / p.experts == rank && first_slot(token, j) == j)
            body(s, row, j, token[j] % p.experts);
        }
  };
  each([&](int32_t s, int64_t, int32_t, int32_t e) {
    ++p.group_rows[e];
    ++p.returned[s];
  });
  for (int32_t e = 0; e < p.experts; ++e) {
    p.rows += round_up(p.group_rows[e], alignment);
    p.group_ends[e] = p.rows;
  }
  t.row_source.assign(p.rows, -1);
  t.row_slots.assign(p.rows, 0);
  t.row_place.assign(p.rows, -1);
  std::vector<int64_t> next(p.experts);
  for (int32_t e = 0; e < p.experts; ++e) next[e] = e ? p.group_ends[e - 1] : 0;
  each([&](int32_t, int64_t row, int32_t j, int32_t e) {
    const int64_t at = next[e]++;
    t.row_source[at] = static_cast<int32_t>(row);
    uint32_t slots = 0;
    for (int32_t i = j; i < k; ++i) slots |= uint32_t(ids_in[row * k + i] == ids_in[row * k + j]) << i;
    t.row_slots[at] = static_cast<int32_t>(slots);
    t.row_place[at] = static_cast<int32_t>(t.return_row.size());
    t.return_row.push_back(static_cast<int32_t>(at));
  });
}

std::vector<int64_t> starts(const std::vector<int64_t> &counts, int64_t unit, std::vector<int64_t> &bytes) {
  std::vector<int64_t> offsets;
  int64_t at = 0;
  bytes.clear();
  for (int64_t n : counts) {
    offsets.push_back(at);
    bytes.push_back(n * unit);
    at += n * unit;
  }
  return offsets;
}

}  // namespace

DispatchSizes dispatch_sizes(const fp8_comm &comm, const fp8_dispatch_config &config) {
  check_config(config);
  const int32_t scaling = activation_scaling(*config.recipe);
  const int64_t base = scaling == FP8_SCALING_1X128 ? 128 : scaling == FP8_SCALING_1X32 ? 32 : 16, size = comm.ops.size;
  DispatchSizes s{};
  s.alignment = config.row_alignment ? config.row_alignment : base;
  if (s.alignment < 0 || s.alignment % base)
    fail(FP8_ERR_ARGUMENT, "config.row_alignment is %d, with %s scales it must be a multiple of %lld",
         config.row_alignment, scaling_name(scaling), ll(base));
  const int64_t k = config.k, experts = config.experts_per_rank;
  int64_t all, ids;
  if (__builtin_mul_overflow(config.max_tokens, size * std::min(k, experts), &all) ||
      __builtin_mul_overflow(config.max_tokens, size * k, &ids) || all > INT32_MAX - experts * s.alignment ||
      ids > INT32_MAX)
    fail(FP8_ERR_UNSUPPORTED, "config.max_tokens is %lld: %lld ranks x %lld slots of it are more than 2^31 rows",
         ll(config.max_tokens), ll(size), ll(k));
  s.max_sent = config.max_tokens * std::min<int64_t>(k, size);
  s.max_received = config.max_tokens * size;
  s.max_returned = all;
  s.max_rows = (all + experts * (s.alignment - 1)) / s.alignment * s.alignment;
  s.memory = table(s.max_sent) + 3 * table(s.max_rows) + table(s.max_returned) + table(config.max_tokens * k);
  return s;
}

fp8_dispatch_plan *create_plan(const fp8_context &c, fp8_comm &comm, const fp8_dispatch_config &config,
                               fp8_stream stream) {
  check_stream(c, stream);
  if (!c.api->route_copy) fail(FP8_ERR_UNSUPPORTED, "the %s backend has no kernels that route rows", c.api->name);
  const DispatchSizes sizes = dispatch_sizes(comm, config);
  if (!config.memory) fail(FP8_ERR_ARGUMENT, "config.memory is NULL");
  if (config.memory->bytes < sizes.memory)
    fail(FP8_ERR_ARGUMENT, "config.memory has %llu bytes, %llu are needed",
         static_cast<unsigned long long>(config.memory->bytes), static_cast<unsigned long long>(sizes.memory));
  if (sizes.memory && (!config.memory->data || reinterpret_cast<uintptr_t>(config.memory->data) % 16))
    fail(FP8_ERR_ARGUMENT, "config.memory.data is %p, it must be aligned to 16 bytes", config.memory->data);
  const int32_t size = comm.ops.size, rank = comm.ops.rank;
  auto plan = std::make_unique<fp8_dispatch_plan>();
  fp8_dispatch_plan &p = *plan;
  p.context = Ref<const fp8_context>::share(&c);
  p.comm = Ref<fp8_comm>::share(&comm);
  p.recipe = Ref<const fp8_recipe>::share(config.recipe);
  p.tokens = config.tokens;
  p.hidden = config.hidden;
  p.k = config.k;
  p.experts = config.experts_per_rank;
  const fp8_qtensor row = describe(*config.recipe, FP8_ROLE_ACTIVATION, 1, config.hidden, FP8_SIDE_ROW);
  p.scaling = row.row_kind;
  p.dtype = row.row.dtype;
  if (is_quantized(p.scaling)) {
    p.scale_dtype = row.row_scale.dtype;
    p.scales = scale_view(row.row_scale).cols;
  }
  Tables t;
  std::vector<int32_t> ids, ids_out;
  std::string wrong;
  try {
    ids = read_ids(c, config, stream);
    check_ids(ids, config.k, int64_t{size} * config.experts_per_rank);
  } catch (const Error &e) {  // the others must hear of it
    wrong = e.what();
    ids.assign(config.tokens * config.k, -1);
  }
  plan_sending(p, ids, t, ids_out);
  const Header own{!wrong.empty(),          config.hidden,   config.max_tokens, config.k,
                   config.experts_per_rank, sizes.alignment, p.scaling,         p.dtype};
  constexpr int64_t fields = sizeof(Header) / sizeof(int64_t);
  std::vector<int64_t> mine(fields + size), all((fields + size) * size);
  std::copy_n(reinterpret_cast<const int64_t *>(&own), fields, mine.begin());
  std::copy_n(p.sent.begin(), size, mine.begin() + fields);
  gather_host(&c, comm, mine.data(), all.data(), mine.size() * sizeof(int64_t), stream);
  if (!wrong.empty()) fail(FP8_ERR_ARGUMENT, "%s", wrong.c_str());
  for (int32_t r = 0; r < size; ++r) {
    const int64_t *theirs = &all[r * mine.size()];
    if (theirs[0]) fail(FP8_ERR_COMM, "rank %d has invalid expert_ids", r);
    for (int64_t f = 1; f < fields; ++f)
      if (theirs[f] != all[f])
        fail(FP8_ERR_COMM, "config.%s is %lld on rank %d, %lld on rank 0: it must be equal on all ranks", kFields[f],
             ll(theirs[f]), r, ll(all[f]));
    p.received.push_back(theirs[fields + rank]);
  }
  std::vector<int64_t> out_bytes, in_bytes;
  const int64_t unit = p.k * int64_t{sizeof(int32_t)};
  const std::vector<int64_t> out_at = starts(p.sent, unit, out_bytes), in_at = starts(p.received, unit, in_bytes);
  std::vector<int32_t> ids_in((in_at.back() + in_bytes.back()) / sizeof(int32_t));
  exchange_host(c, comm, ids_out.data(), out_bytes.data(), out_at.data(), ids_in.data(), in_bytes.data(), in_at.data(),
                stream);
  plan_groups(p, ids_in, sizes.alignment, t);
  // one host array, one copy
  std::vector<int32_t> host;
  char *base = static_cast<char *>(config.memory->data);
  const auto lay = [&](const std::vector<int32_t> &from, const int32_t *&to) {
    to = reinterpret_cast<const int32_t *>(base + host.size() * sizeof(int32_t));
    host.insert(host.end(), from.begin(), from.end());
    host.resize(table(host.size()) / sizeof(int32_t));
  };
  lay(t.send_token, p.send_token);
  lay(t.row_source, p.row_source);
  lay(t.row_slots, p.row_slots);
  lay(t.row_place, p.row_place);
  lay(t.return_row, p.return_row);
  lay(t.token_place, p.token_place);
  if (!host.empty()) check(c.api->copy(c.self, base, host.data(), host.size() * sizeof(int32_t), stream));
  check(c.api->stream_sync(c.self, stream));
  return plan.release();
}

}  // namespace fp8
