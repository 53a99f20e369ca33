#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/ranks/rank_exchange.hpp"
#include "pipeline/core/ranks/rank_place.hpp"

namespace distilld::models {

/// Another rank has ended, or is not heard of.
class RankLost : public std::runtime_error {
  public:
    RankLost(std::uint32_t rank, bool left, const std::string& words)
        : std::runtime_error(words), rank_(rank), left_(left) {}

    [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
    /// It ended in good order, for example because the job was cancelled.
    [[nodiscard]] bool left() const noexcept { return left_; }

  private:
    std::uint32_t rank_;
    bool left_;
};

struct RankPatience {
    std::chrono::milliseconds join{300'000};     ///< for all ranks to come
    std::chrono::milliseconds heartbeat{2'000};  ///< between two of a rank
    std::chrono::milliseconds silence{15'000};   ///< without one: the rank is lost
    std::chrono::milliseconds link{15'000};      ///< for any answer from the machine of a peer
    std::chrono::milliseconds leave{10'000};     ///< of rank 0, for the others to end before it; after a loss, less
};

/// The ranks of a job over the network: c10d's TCPStore to meet and for heartbeats, gloo for bytes between two ranks. A
/// thread of the group sends heartbeats and watches those of the others, so a rank may be busy for hours. If one is
/// lost, calls that wait end with RankLost. Torch-free header.
class RankGroup : public RankExchange {
  public:
    /// Blocks until all ranks have joined or, with an error of that kind, `cancelled` says so. The error names ranks
    /// that have not come. `on_lost` is called at most once, on the group's thread: when a rank is silent or failed, or
    /// when rank 0 has left. So is rank 0's `on_stop`: when another rank has called ask_to_stop().
    static Result<std::unique_ptr<RankGroup>> join(const RankPlace& place, std::function<void(const RankLost&)> on_lost,
                                                   const std::function<bool()>& cancelled = {},
                                                   RankPatience patience = {}, std::function<void()> on_stop = {});

    /// Asks rank 0 to end the run in good order. Does not wait. Not on rank 0.
    virtual void ask_to_stop() noexcept = 0;

    /// Tells the others that this rank has failed and why, unless it has ended before.
    virtual void fail(const std::string& why) noexcept = 0;
    /// Ends this rank in good order. Rank 0 waits for the others to end. The destructor calls it.
    virtual void leave() noexcept = 0;
};

}  // namespace distilld::models
