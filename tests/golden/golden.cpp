// SPDX-License-Identifier: Apache-2.0
#include "golden.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace golden {
namespace {

[[noreturn]] void broken(const std::string &what) { throw std::runtime_error("golden: " + what); }

std::vector<char> read_file(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) broken("cannot read " + path);
  return std::vector<char>(std::istreambuf_iterator<char>(in), {});
}

class Parser {
 public:
  explicit Parser(const std::vector<char> &text) : at_(text.data()), end_(text.data() + text.size()) {}
  Value value() {
    Value v;
    switch (peek()) {
      case '{':
        v.kind = Value::kObject;
        for (take('{'); peek() != '}';) {
          std::string key = text();
          take(':');
          v.object[key] = value();
          if (peek() == ',') take(',');
        }
        take('}');
        return v;
      case '[':
        v.kind = Value::kList;
        for (take('['); peek() != ']';) {
          v.list.push_back(value());
          if (peek() == ',') take(',');
        }
        take(']');
        return v;
      case '"':
        v.kind = Value::kText;
        v.text = text();
        return v;
      default:
        return word();
    }
  }

 private:
  char peek() {
    while (at_ < end_ && std::strchr(" \t\r\n", *at_)) ++at_;
    if (at_ == end_) broken("manifest.json ends early");
    return *at_;
  }
  void take(char c) {
    if (peek() != c) broken(std::string("manifest.json lacks ") + c);
    ++at_;
  }
  std::string text() {
    take('"');
    std::string s;
    for (; at_ < end_ && *at_ != '"'; ++at_) {
      if (*at_ == '\\') ++at_;  // no \u in this file's keys and names
      s += *at_;
    }
    take('"');
    return s;
  }
  Value word() {
    const char *begin = at_;
    while (at_ < end_ && !std::strchr(",]} \t\r\n", *at_)) ++at_;
    const std::string s(begin, at_);
    Value v;
    if (s == "null") return v;
    v.kind = Value::kNumber;
    v.number = s == "true" ? 1 : s == "false" ? 0 : std::strtod(s.c_str(), nullptr);
    return v;
  }
  const char *at_, *end_;
};

Array part(const Value &parts, const std::string &key) {
  const Value &entry = parts[key];
  Array a = load(entry["file"].text);
  if (a.dtype != entry["dtype"].text) broken(entry["file"].text + " has another dtype than the manifest");
  if (a.shape.size() != entry["shape"].list.size()) broken(entry["file"].text + " has another shape");
  for (size_t i = 0; i < a.shape.size(); ++i)
    if (a.shape[i] != static_cast<int64_t>(entry["shape"].list[i].number))
      broken(entry["file"].text + " has another shape");
  return a;
}

}  // namespace

int64_t Array::size() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

const Value &Value::operator[](const std::string &key) const {
  const auto found = object.find(key);
  if (found == object.end()) broken("no " + key);
  return found->second;
}

Array Case::input(const std::string &key) const { return part(inputs, key); }
Array Case::output(const std::string &key) const { return part(expected, key); }

std::string folder() {
  const char *given = std::getenv("FP8_GOLDEN_DIR");
  return given && *given ? given : FP8_GOLDEN_DIR;
}

Array load(const std::string &file) {
  const std::vector<char> all = read_file(folder() + "/" + file);
  if (all.size() < 10 || std::memcmp(all.data(), "\x93NUMPY\x01", 7) != 0) broken(file + " is no .npy v1 file");
  const size_t header = static_cast<uint8_t>(all[8]) | static_cast<size_t>(static_cast<uint8_t>(all[9])) << 8;
  const std::string text(all.data() + 10, header);
  Array a;
  static const std::map<std::string, std::pair<std::string, int>> kDtypes = {
      {"|u1", {"uint8", 1}},   {"<u2", {"uint16", 2}},  {"<u4", {"uint32", 4}}, {"<i4", {"int32", 4}},
      {"<f4", {"float32", 4}}, {"<f8", {"float64", 8}}, {"<i8", {"int64", 8}}};
  const size_t descr = text.find("'descr': '") + 10;
  const auto dtype = kDtypes.find(text.substr(descr, 3));
  if (dtype == kDtypes.end() || text.find("'fortran_order': False") == std::string::npos)
    broken(file + ": unknown header");
  a.dtype = dtype->second.first;
  const size_t shape = text.find("'shape': (") + 10;
  for (const char *p = text.c_str() + shape; *p && *p != ')';) {
    char *next;
    const long long n = std::strtoll(p, &next, 10);
    if (next == p) {
      ++p;
    } else {
      a.shape.push_back(n);
      p = next;
    }
  }
  a.bytes.assign(all.begin() + 10 + static_cast<std::ptrdiff_t>(header), all.end());
  if (static_cast<int64_t>(a.bytes.size()) != a.size() * dtype->second.second) broken(file + " has the wrong length");
  return a;
}

std::vector<Case> cases(const std::string &family) {
  const std::vector<char> text = read_file(folder() + "/manifest.json");
  const Value manifest = Parser(text).value();
  std::vector<Case> found;
  for (const Value &v : manifest["cases"].list)
    if (v["family"].text == family) found.push_back({family, v["case"].text, v["params"], v["inputs"], v["expected"]});
  if (found.empty()) broken("no case of family " + family);
  return found;
}

}  // namespace golden
