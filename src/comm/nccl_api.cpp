// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_api.h"

#include <dlfcn.h>

#include <mutex>
#include <vector>

#include "core/symbols.h"

namespace fp8::nccl {
namespace {

constexpr const char *kName = "libnccl.so.2";

bool fill(void *library, Api &api) {
  Symbols found(library);
  found.take(api.get_version, "ncclGetVersion");
  found.take(api.unique_id, "ncclGetUniqueId");
  found.take(api.init_rank, "ncclCommInitRank");
  found.take(api.abort, "ncclCommAbort");
  found.take(api.async_error, "ncclCommGetAsyncError");
  found.take(api.count, "ncclCommCount");
  found.take(api.rank, "ncclCommUserRank");
  found.take(api.device, "ncclCommCuDevice");
  found.take(api.error_string, "ncclGetErrorString");
  found.take(api.last_error, "ncclGetLastError");
  found.take(api.all_reduce, "ncclAllReduce");
  found.take(api.all_gather, "ncclAllGather");
  found.take(api.broadcast, "ncclBroadcast");
  found.take(api.send, "ncclSend");
  found.take(api.receive, "ncclRecv");
  found.take(api.group_start, "ncclGroupStart");
  found.take(api.group_end, "ncclGroupEnd");
  return found.all();
}

std::vector<std::string> candidates() {
  std::vector<std::string> files;
  Dl_info info;
  if (dladdr(reinterpret_cast<void *>(&candidates), &info) && info.dli_fname) {
    std::string folder = info.dli_fname;
    folder = folder.substr(0, folder.find_last_of('/') + 1);
    files.push_back(folder + kName);
    // a Python package keeps its libraries one or two folders below site-packages
    for (const char *up : {"../", "../../"}) files.push_back(folder + up + "nvidia/nccl/lib/" + kName);
  }
  files.push_back(kName);
  return files;
}

bool accept(void *library, const std::string &file, Api &api, std::string &why) {
  if (!fill(library, api)) {
    why += "; " + file + " lacks symbols";
    return false;
  }
  if (api.get_version(&api.version) != kSuccess || api.version < kMinimum) {
    why += "; " + file + " is version " + std::to_string(api.version) + ", older than " + std::to_string(kMinimum);
    return false;
  }
  Dl_info info;
  api.path = dladdr(reinterpret_cast<void *>(api.all_gather), &info) && info.dli_fname ? info.dli_fname : file;
  return true;
}

}  // namespace

const Api *api(bool loaded_only, std::string *why) {
  static std::mutex mutex;
  static Api found;
  static bool good = false;
  std::lock_guard<std::mutex> lock(mutex);
  if (good) return &found;
  std::string tried;
  if (void *library = dlopen(kName, RTLD_NOW | RTLD_NOLOAD)) {
    if (accept(library, kName, found, tried)) {
      good = true;
      return &found;
    }
  } else {
    tried += std::string("; no ") + kName + " is in this process";
  }
  for (const std::string &file : loaded_only ? std::vector<std::string>() : candidates()) {
    void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      tried += "; " + file + " was not opened";
    } else if (accept(library, file, found, tried)) {
      good = true;
      return &found;
    }
  }
  *why = tried.empty() ? tried : tried.substr(2);
  return nullptr;
}

}  // namespace fp8::nccl
