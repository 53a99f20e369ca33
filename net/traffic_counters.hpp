#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace distilld {

/// A count that may be part of a larger one. Written on the I/O thread, read on any.
class TrafficCount {
  public:
    explicit TrafficCount(TrafficCount* whole) : whole_(whole) {}

    TrafficCount& operator+=(std::uint64_t more) {
        value_ += more;
        if (whole_ != nullptr) {
            whole_->value_ += more;
        }
        return *this;
    }
    TrafficCount& operator++() { return *this += 1; }
    [[nodiscard]] std::uint64_t load() const { return value_.load(); }

  private:
    std::atomic<std::uint64_t> value_{0};
    TrafficCount* whole_;
};

/// Bytes and connections on the wire.
struct TrafficCounters {
    /// Also counts in `all`, unless that is null.
    explicit TrafficCounters(std::shared_ptr<TrafficCounters> all = nullptr)
        : whole(std::move(all)),
          requests(whole ? &whole->requests : nullptr),
          bytes_sent(whole ? &whole->bytes_sent : nullptr),
          bytes_received(whole ? &whole->bytes_received : nullptr),
          connections_opened(whole ? &whole->connections_opened : nullptr),
          stale_connections(whole ? &whole->stale_connections : nullptr) {}

    const std::shared_ptr<TrafficCounters> whole;
    TrafficCount requests;
    TrafficCount bytes_sent;      ///< of heads and bodies
    TrafficCount bytes_received;  ///< of bodies, whole or in part
    TrafficCount connections_opened;
    TrafficCount stale_connections;  ///< kept connections that were found closed and reopened
};

}  // namespace distilld
