#pragma once

#ifdef DISTILLD_WITH_GLOO

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "pipeline/core/ranks/rank_place.hpp"

namespace gloo::transport {
class Device;
}

/// Where ranks meet. All throw what c10d throws.
namespace distilld::models {

/// The network device that reaches the meeting point; GLOO_SOCKET_IFNAME names another one, as in PyTorch.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> device_for(const RankPlace& place);

/// A connection to the ranks' store, which this process serves if `serves`. `timeout`: for the connection.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store(const RankPlace& place, bool serves,
                                                         std::chrono::milliseconds timeout);

/// Calls of a store wait for its server without end, even if that is a process that the kernel has stopped. Gives all
/// connections of this process to the meeting point a limit.
void limit_waits(const RankPlace& place);

}  // namespace distilld::models

#endif
