// SPDX-License-Identifier: Apache-2.0
// Reads the golden vectors: .npy v1 (C order, little endian) and the part of JSON that manifest.json uses.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace golden {

struct Array {
  std::string dtype;  // "uint8", "uint16", "uint32", "int32", "float32", "float64"
  std::vector<int64_t> shape;
  std::vector<char> bytes;
  int64_t size() const;
  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t cols() const { return shape.size() < 2 ? 1 : shape[1]; }
  template <class T>
  const T *as() const {
    return reinterpret_cast<const T *>(bytes.data());
  }
};

struct Value {  // of JSON
  enum Kind { kNull, kNumber, kText, kList, kObject } kind = kNull;
  double number = 0;
  std::string text;
  std::vector<Value> list;
  std::map<std::string, Value> object;
  const Value &operator[](const std::string &key) const;  // throws when absent
  bool has(const std::string &key) const { return object.count(key) != 0; }
};

struct Case {
  std::string family, name;
  Value params, inputs, expected;
  Array input(const std::string &key) const;  // throws when the file is absent or differs from the manifest's shape
  Array output(const std::string &key) const;
};

// FP8_GOLDEN_DIR of the environment, else the folder the test was built with.
std::string folder();
Array load(const std::string &file);
std::vector<Case> cases(const std::string &family);  // throws when there is none

}  // namespace golden
