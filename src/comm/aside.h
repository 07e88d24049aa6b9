// SPDX-License-Identifier: Apache-2.0
// What may wait for others, beside the caller.
#pragma once
#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace fp8 {

// Does `work` on a thread of its own, and comes back when it is done or after `limit`: false, and it goes on alone.
// Where no thread can be had, the caller does it.
template <class Work>
bool aside(Work work, std::chrono::milliseconds limit) {
  const auto ended = std::make_shared<std::promise<void>>();
  const std::future<void> end = ended->get_future();
  try {
    std::thread([work, ended]() mutable {
      work();
      ended->set_value();
    }).detach();
  } catch (const std::system_error &) {
    work();
    return true;
  }
  return end.wait_for(limit) == std::future_status::ready;
}

}  // namespace fp8
