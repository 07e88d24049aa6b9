// SPDX-License-Identifier: Apache-2.0
#include "core/module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "core/log.h"

namespace fp8 {

bool verbose_on() {
  static const bool on = [] {
    const char *value = std::getenv("FP8_VERBOSE");
    return value && *value && std::string(value) != "0";
  }();
  return on;
}

void verbose(const char *line) {
  if (verbose_on()) std::fprintf(stderr, "libfp8: %s\n", line);
}

namespace {

std::vector<std::string> module_folders() {
  std::vector<std::string> folders;
  if (const char *path = std::getenv("FP8_MODULE_PATH"); path && *path) {
    std::string all(path);
    for (size_t begin = 0; begin <= all.size();) {
      const size_t end = std::min(all.find(':', begin), all.size());
      if (end > begin) folders.push_back(all.substr(begin, end - begin));
      begin = end + 1;
    }
    return folders;
  }
  Dl_info info;
  if (dladdr(reinterpret_cast<const void *>(&load_module), &info) && info.dli_fname) {
    std::string name(info.dli_fname);
    const size_t slash = name.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : name.substr(0, slash);
    folders.push_back(folder);
    folders.push_back(folder + "/fp8");
  }
  return folders;
}

struct Loaded {
  void *handle = nullptr;
  std::string why;
  bool present = false;  // a file of this name was there
};

Loaded open_module(const std::string &stem) {
  Loaded result;
  for (const std::string &folder : module_folders()) {
    const std::string file = folder + "/lib" + stem + ".so";
    result.present = result.present || access(file.c_str(), F_OK) == 0;
    // RTLD_LOCAL: two copies of a vendor's library in one process never see each other's symbols through us.
    result.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (result.handle) {
      verbose(("loaded " + file).c_str());
      result.why.clear();
      return result;
    }
    const char *error = dlerror();
    if (!result.why.empty()) result.why += "; ";
    result.why += error ? error : file + ": unknown error";
  }
  if (result.why.empty()) result.why = "no folder to look in";
  verbose((stem + " not loaded: " + result.why).c_str());
  return result;
}

}  // namespace

void *load_module(const char *stem, std::string *why, bool *present) {
  static std::mutex mutex;
  static std::map<std::string, Loaded> *loaded = new std::map<std::string, Loaded>;  // lives as long as the process
  std::lock_guard<std::mutex> lock(mutex);
  auto found = loaded->find(stem);
  if (found == loaded->end()) found = loaded->emplace(stem, open_module(stem)).first;
  if (why) *why = found->second.why;
  if (present) *present = found->second.present;
  return found->second.handle;
}

int cuda_device_count() {
  static const int count = [] {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) return 0;
    auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    auto get = reinterpret_cast<int (*)(int *)>(dlsym(driver, "cuDeviceGetCount"));
    int devices = 0;
    if (!init || !get || init(0) != 0 || get(&devices) != 0) return 0;
    return devices;
  }();
  return count;
}

}  // namespace fp8
