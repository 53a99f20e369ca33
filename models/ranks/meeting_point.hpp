#pragma once

#ifdef DISTILLD_WITH_GLOO

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "pipeline/core/ranks/rank_place.hpp"

namespace gloo::transport {
class Device;
}

/// Where ranks meet. All throw what c10d throws.
namespace distilld::models {

/// The network device that reaches the meeting point; GLOO_SOCKET_IFNAME names another one, as in PyTorch.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> device_for(const RankPlace& place);

/// A connection to the ranks' store, which this process serves if `serves`. Tries again until the deadline, which an
/// attempt may exceed; a store that cannot be served is not tried again. Null: cancelled.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store(const RankPlace& place, bool serves,
                                                         std::chrono::steady_clock::time_point deadline,
                                                         const std::function<bool()>& cancelled);

/// The connected TCP sockets of this process.
[[nodiscard]] std::set<int> connected_sockets();

/// Ends connections that are not among `others` once they have not reached their peer for `limit` (at least 1 s),
/// whether bytes are waiting or not: without this, a link that drops packets silently would block a rank for a quarter
/// of an hour, or for ever. A peer that is alive answers in time, however busy it is, because its kernel does.
void limit_silence(const std::set<int>& others, std::chrono::milliseconds limit);

/// Calls of a store wait for its server without end, even if that is a process that the kernel has stopped. Gives all
/// connections of this process to the meeting point a limit.
void limit_waits(const RankPlace& place);

}  // namespace distilld::models

#endif
