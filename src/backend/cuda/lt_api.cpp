// SPDX-License-Identifier: Apache-2.0
#include "lt_api.h"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/symbols.h"

namespace fp8::cuda {
namespace {

constexpr const char *kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// pip's packages: nvidia/cu13/lib, nvidia/cublas/lib
std::vector<std::string> nvidia_folders(const std::string &site) {
  std::vector<std::string> folders;
  if (DIR *dir = opendir((site + "/nvidia").c_str())) {
    while (dirent *entry = readdir(dir))
      if (entry->d_name[0] != '.') folders.push_back(site + "/nvidia/" + entry->d_name + "/lib");
    closedir(dir);
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool fill(void *library, LtApi &api) {
  Symbols found(library);
  found.take(api.create, "cublasLtCreate");
  found.take(api.destroy, "cublasLtDestroy");
  found.take(api.get_version, "cublasLtGetVersion");
  found.take(api.status_name, "cublasLtGetStatusName");
  found.take(api.matmul, "cublasLtMatmul");
  found.take(api.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  found.take(api.desc_init, "cublasLtMatmulDescInit_internal");
  found.take(api.desc_set, "cublasLtMatmulDescSetAttribute");
  found.take(api.layout_init, "cublasLtMatrixLayoutInit_internal");
  found.take(api.layout_set, "cublasLtMatrixLayoutSetAttribute");
  found.take(api.preference_init, "cublasLtMatmulPreferenceInit_internal");
  found.take(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  found.take(api.algo_get, "cublasLtMatmulAlgoConfigGetAttribute");
  return found.all();
}

struct Found {
  LtApi api;
  std::string why;
  bool good = false;

  bool accept(void *library, const std::string &file) {
    if (!fill(library, api)) {
      why += "; " + file + " lacks symbols";
      return false;
    }
    api.version = api.get_version();
    if (api.version < kLtMinimum) {
      why += "; " + file + " is version " + std::to_string(api.version) + ", older than " + std::to_string(kLtMinimum);
      return false;
    }
    Dl_info info;
    api.path = dladdr(reinterpret_cast<void *>(api.matmul), &info) && info.dli_fname ? info.dli_fname : file;
    return good = true;
  }

  Found() {
    for (const char *name : kNames)  // a second copy in one process would double its kernels' memory
      if (void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD))
        if (accept(library, std::string(name) + " already in the process")) return;
    Dl_info info;
    std::string folder = ".";
    if (dladdr(reinterpret_cast<const void *>(&lt_api), &info) && info.dli_fname) {
      folder = info.dli_fname;
      const size_t slash = folder.rfind('/');
      folder = slash == std::string::npos ? "." : folder.substr(0, slash);
    }
    const char *python = std::getenv("PYTHONPATH");
    for (const std::string &file : split(lt_candidates(folder, python ? python : "", ':'), ':')) {
      void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!library) continue;
      if (accept(library, file)) return;
    }
    why =
        "cuBLASLt 12.9 or newer was not found in the process, beside the module, in nvidia/*/lib of Python's packages, "
        "or by the system's loader" +
        why + "; install CUDA 13 or pip's nvidia-cublas, or put its folder on LD_LIBRARY_PATH";
  }
};

}  // namespace

std::string lt_candidates(const std::string &module_folder, const std::string &python_paths, char separator) {
  std::string list;
  auto add = [&](const std::string &file) {
    if (!list.empty()) list += separator;
    list += file;
  };
  for (const char *name : kNames) add(module_folder + "/" + name);
  // a module inside a Python package lies in site-packages/fp8: its siblings are pip's packages
  std::vector<std::string> sites = {module_folder + "/..", module_folder + "/../.."};
  for (const std::string &path : split(python_paths, ':')) sites.push_back(path);
  for (const std::string &site : sites)
    for (const std::string &folder : nvidia_folders(site))
      for (const char *name : kNames) add(folder + "/" + name);
  for (const char *name : kNames) add(name);
  for (const char *name : kNames) add(std::string("/usr/local/cuda/lib64/") + name);
  return list;
}

const LtApi *lt_api(std::string *why) {
  static const Found *found = new Found;  // as long as the process
  if (why) *why = found->why;
  return found->good ? &found->api : nullptr;
}

}  // namespace fp8::cuda
