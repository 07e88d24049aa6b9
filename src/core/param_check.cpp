// SPDX-License-Identifier: Apache-2.0
// Do all ranks hold the same list of params? Who does not, and what the first difference is.
#include <cstring>

#include "core/param.h"

namespace fp8 {

namespace {

using ll = long long;

std::vector<int64_t> numbers(const std::string &bytes) {
  std::vector<int64_t> all(bytes.size() / sizeof(int64_t));
  if (!all.empty()) std::memcpy(all.data(), bytes.data(), all.size() * sizeof(int64_t));
  return all;
}

// The field of a recipe's text that holds this byte.
std::string field_at(const std::string &text, size_t at) {
  const size_t before = at ? text.rfind(';', at - 1) : std::string::npos;
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, text.find(';', begin) - begin);
}

std::string recipes_differ(const std::string &theirs, const std::string &first) {
  size_t at = 0;
  while (at < theirs.size() && at < first.size() && theirs[at] == first[at]) ++at;
  return "it has " + field_at(theirs, at) + ", rank 0 " + field_at(first, at);
}

std::string shapes_differ(const std::string &theirs, const std::string &first) {
  const std::vector<int64_t> a = numbers(theirs), b = numbers(first);
  if (a.size() != b.size()) return format("a list of %zu, rank 0 has one of %zu", a.size() / 2, b.size() / 2);
  size_t i = 0;
  while (a[i] == b[i] && a[i + 1] == b[i + 1]) i += 2;
  return format("params[%zu] is %lld x %lld, rank 0's %lld x %lld", i / 2, ll(a[i]), ll(a[i + 1]), ll(b[i]),
                ll(b[i + 1]));
}

}  // namespace

void param_check(const fp8_context &c, fp8_comm &comm, const fp8_param *const *params, int32_t count) {
  // A rank that cannot even read its own list says so to the others before anyone fails.
  std::string wrong, recipe;
  std::vector<int64_t> shapes, cuts;
  try {
    const ParamLayout l = param_layout(params, count);
    check_comm(l, comm);
    recipe = recipe_text(*params[0]->recipe);
    for (int32_t i = 0; i < count; ++i) {
      shapes.insert(shapes.end(), {params[i]->rows, params[i]->cols});
      cuts.insert(cuts.end(), params[i]->cuts.begin(), params[i]->cuts.end());
    }
  } catch (const Error &e) {
    wrong = e.what();
  }
  int32_t bad = !wrong.empty();
  std::vector<int32_t> all(comm.ops.size);
  gather_host(&c, comm, &bad, all.data(), sizeof bad, nullptr);
  if (bad) fail(FP8_ERR_ARGUMENT, "%s", wrong.c_str());
  for (int32_t r = 0; r < comm.ops.size; ++r)
    if (all[r]) fail(FP8_ERR_COMM, "rank %d has an invalid list of params", r);
  // The shapes are equal where the cuts are compared, and so is the number of ranks: there are as many cuts.
  const size_t per_param = size_t(comm.ops.size) + 1;
  const auto cuts_differ = [&](const std::string &theirs, const std::string &first) {
    const std::vector<int64_t> a = numbers(theirs), b = numbers(first);
    size_t i = 0;
    while (a[i] == b[i]) ++i;
    return format("params[%zu].cuts[%zu] is %lld, rank 0's %lld", i / per_param, i % per_param, ll(a[i]), ll(b[i]));
  };
  comm_check(&c, comm, "the recipe of the params", recipe.data(), recipe.size(), recipes_differ);
  comm_check(&c, comm, "the shapes and order of the params", shapes.data(), shapes.size() * sizeof(int64_t),
             shapes_differ);
  comm_check(&c, comm, "the cuts of the params", cuts.data(), cuts.size() * sizeof(int64_t), cuts_differ);
}

}  // namespace fp8
