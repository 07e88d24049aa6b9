// SPDX-License-Identifier: Apache-2.0
// Recipes as text: "fp8-1;preset=block;x=e4m3/1x128;w=e4m3/128x128;dy=e4m3/1x128;scale=pow2;..." and the names other
// projects use.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/recipe.h"
#include "core/tensor.h"

namespace fp8 {

namespace {

struct Name {
  const char *text;
  int32_t value;
};

// The first name of a value is the canonical one; later ones are what Megatron-Core, Transformer Engine and torchao
// call it.
constexpr Name kPresets[] = {
    {"none", FP8_PRESET_NONE},
    {"bf16", FP8_PRESET_NONE},
    {"tensor", FP8_PRESET_TENSOR},
    {"tensorwise", FP8_PRESET_TENSOR},
    {"current", FP8_PRESET_TENSOR},
    {"float8currentscaling", FP8_PRESET_TENSOR},
    {"tensor_delayed", FP8_PRESET_TENSOR_DELAYED},
    {"delayed", FP8_PRESET_TENSOR_DELAYED},
    {"delayedscaling", FP8_PRESET_TENSOR_DELAYED},
    {"row", FP8_PRESET_ROW},
    {"rowwise", FP8_PRESET_ROW},
    {"block", FP8_PRESET_BLOCK},
    {"blockwise", FP8_PRESET_BLOCK},
    {"float8blockscaling", FP8_PRESET_BLOCK},
    {"mx", FP8_PRESET_MX},
    {"mxfp8", FP8_PRESET_MX},
    {"mxfp8blockscaling", FP8_PRESET_MX},
    {"mx_w2d", FP8_PRESET_MX_W2D},
};
constexpr Name kDtypes[] = {
    {"e4m3", FP8_DTYPE_E4M3}, {"e5m2", FP8_DTYPE_E5M2}, {"bf16", FP8_DTYPE_BF16}, {"f16", FP8_DTYPE_F16}};
constexpr Name kScalings[] = {{"unquantized", FP8_SCALING_UNQUANTIZED},
                              {"tensor", FP8_SCALING_TENSOR},
                              {"row", FP8_SCALING_ROW},
                              {"1x128", FP8_SCALING_1X128},
                              {"128x128", FP8_SCALING_128X128},
                              {"1x32", FP8_SCALING_1X32},
                              {"32x32", FP8_SCALING_32X32}};
constexpr Name kRules[] = {{"none", 0},
                           {"fp32", FP8_SCALE_FP32},
                           {"pow2", FP8_SCALE_POW2},
                           {"e8m0", FP8_SCALE_E8M0},
                           {"e8m0_floor", FP8_SCALE_E8M0_FLOOR}};
constexpr Name kGemms[] = {{"fprop", FP8_FPROP}, {"dgrad", FP8_DGRAD}, {"wgrad", FP8_WGRAD}};
constexpr Name kMasters[] = {{"bf16", FP8_MASTER_BF16}, {"direct", FP8_MASTER_DIRECT}};

template <size_t N>
const char *name_of(const Name (&names)[N], int32_t value) {
  for (const Name &n : names)
    if (n.value == value) return n.text;
  return "unknown";
}

// Names are read in any case, and echoed as they were given.
std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : char(c); });
  return text;
}

template <size_t N>
int32_t value_of(const Name (&names)[N], const std::string &text, const char *key) {
  const std::string name = lower(text);
  std::string known;
  for (const Name &n : names) {
    if (name == n.text) return n.value;
    known += (known.empty() ? "" : ", ") + std::string(n.text);
  }
  fail(FP8_ERR_ARGUMENT, "text has %s \"%s\", known are %s", key, text.c_str(), known.c_str());
}

std::string gemm_list(uint32_t bits) {
  std::string list;
  for (const Name &n : kGemms)
    if (bits & n.value) list += (list.empty() ? "" : "+") + std::string(n.text);
  return list.empty() ? "none" : list;
}

std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

uint32_t parse_gemms(const std::string &text, const char *key) {
  if (lower(text) == "none") return FP8_NO_GEMM;
  uint32_t bits = 0;
  for (const std::string &part : split(text, '+')) bits |= value_of(kGemms, part, key);
  return bits;
}

void parse_role(const std::string &text, const char *key, int32_t &dtype, int32_t &scaling) {
  const size_t slash = text.find('/');
  dtype = value_of(kDtypes, text.substr(0, slash), key);
  if (slash != std::string::npos) scaling = value_of(kScalings, text.substr(slash + 1), key);
}

// Neither reading nor writing may follow the process's locale: strtof and %a take its decimal point.
float parse_number(const std::string &given, const char *key) {
  const std::string text = lower(given);
  const bool hex = text.compare(0, 2, "0x") == 0;
  const char *begin = text.data() + (hex ? 2 : 0), *end = text.data() + text.size();
  float value = 0;
  const auto read = std::from_chars(begin, end, value, hex ? std::chars_format::hex : std::chars_format::general);
  if (read.ec != std::errc() || read.ptr != end || (hex && begin != end && *begin == '-'))
    fail(FP8_ERR_ARGUMENT, "text has %s \"%s\", not a number in range", key, given.c_str());
  return value;
}

std::string hex_number(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, double(value), std::chars_format::hex).ptr;
  return "0x" + std::string(text, end);
}

constexpr const char *kKnown = "preset, x, w, dy, format, scale, coverage, fast, amax_floor, master";

void parse_format(const std::string &text, fp8_recipe_config &c) {  // Megatron's --fp8-format
  const std::string name = lower(text);
  if (name != "e4m3" && name != "hybrid")
    fail(FP8_ERR_ARGUMENT, "text has format \"%s\", known are e4m3, hybrid", text.c_str());
  c.activation_dtype = c.weight_dtype = FP8_DTYPE_E4M3;
  c.gradient_dtype = name == "hybrid" ? FP8_DTYPE_E5M2 : FP8_DTYPE_E4M3;
}

struct Field {
  std::string key, value;
};

void parse_field(fp8_recipe_config &c, const Field &f) {
  const std::string key = lower(f.key), &value = f.value;
  if (key == "preset") {
    c.preset = value_of(kPresets, value, "preset");
  } else if (key == "x") {
    parse_role(value, "x", c.activation_dtype, c.activation_scaling);
  } else if (key == "w") {
    parse_role(value, "w", c.weight_dtype, c.weight_scaling);
  } else if (key == "dy") {
    parse_role(value, "dy", c.gradient_dtype, c.gradient_scaling);
  } else if (key == "scale") {
    c.scale_rule = value_of(kRules, value, "scale");
  } else if (key == "coverage") {
    c.coverage = parse_gemms(value, "coverage");
  } else if (key == "fast") {
    c.fast_accumulation = parse_gemms(value, "fast");
  } else if (key == "amax_floor") {
    c.amax_floor = parse_number(value, "amax_floor");
  } else if (key == "master") {
    c.master_rounding = value_of(kMasters, value, "master");
  } else if (key != "format") {
    fail(FP8_ERR_ARGUMENT, "text has unknown field \"%s\", known are %s", f.key.c_str(), kKnown);
  }
}

// NAME or a version first, then key=value; a name is a preset field without its key.
std::vector<Field> split_fields(const char *text) {
  std::vector<Field> fields;
  bool first = true;
  for (const std::string &part : split(text, ';')) {
    const size_t equals = part.find('=');
    if (first && equals == std::string::npos && lower(part).compare(0, 4, "fp8-") == 0) {
      if (lower(part) != "fp8-1")
        fail(FP8_ERR_UNSUPPORTED, "text is of version \"%s\", this library reads fp8-1", part.c_str());
    } else if (equals != std::string::npos) {
      fields.push_back({part.substr(0, equals), part.substr(equals + 1)});
    } else if (first) {
      fields.push_back({"preset", part});
    } else {
      fail(FP8_ERR_ARGUMENT, "text has \"%s\", fields are key=value", part.c_str());
    }
    first = false;
  }
  return fields;
}

}  // namespace

std::string role_text(int32_t dtype, int32_t scaling) {
  const bool known =
      std::any_of(std::begin(kDtypes), std::end(kDtypes), [&](const Name &n) { return n.value == dtype; });
  const std::string text = known ? name_of(kDtypes, dtype) : dtype_name(dtype) + (" (" + std::to_string(dtype) + ")");
  return text + "/" + name_of(kScalings, scaling);
}

const char *rule_text(int32_t rule) { return name_of(kRules, rule); }

std::string recipe_text(const fp8_recipe &r) {
  const fp8_recipe_config &c = r.config;
  std::string text = std::string("fp8-1;preset=") + name_of(kPresets, c.preset);
  text += ";x=" + role_text(c.activation_dtype, c.activation_scaling);
  text += ";w=" + role_text(c.weight_dtype, c.weight_scaling);
  text += ";dy=" + role_text(c.gradient_dtype, c.gradient_scaling);
  text += std::string(";scale=") + rule_text(c.scale_rule);
  text += ";coverage=" + gemm_list(c.coverage) + ";fast=" + gemm_list(c.fast_accumulation);
  text += ";amax_floor=" + hex_number(c.amax_floor);  // hexadecimal: round trips
  return text + ";master=" + name_of(kMasters, c.master_rounding);
}

fp8_recipe *parse_recipe(const char *text) {
  const std::vector<Field> fields = split_fields(text);
  fp8_recipe_config c{};
  c.struct_size = sizeof c;
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string key = lower(fields[i].key);
    for (size_t j = 0; j < i; ++j)
      if (lower(fields[j].key) == key)
        fail(FP8_ERR_ARGUMENT, "text has %s twice, \"%s\" and \"%s\"", key.c_str(), fields[j].value.c_str(),
             fields[i].value.c_str());
    if (key == "format") parse_format(fields[i].value, c);  // first: what x, w and dy say of their own prevails
  }
  for (const Field &field : fields) parse_field(c, field);
  if (!c.preset) fail(FP8_ERR_ARGUMENT, "text \"%.80s\" names no preset", text);
  return create_recipe(c);
}

}  // namespace fp8
