#pragma once

#include <atomic>
#include <cstdint>

namespace distilld {

/// What went over the wire; written on the I/O thread, read on any.
struct TrafficCounters {
    std::atomic<std::uint64_t> requests{0};
    std::atomic<std::uint64_t> bytes_sent{0};
    std::atomic<std::uint64_t> bytes_received{0};  ///< of bodies, whole or in part
    std::atomic<std::uint64_t> connections_opened{0};
    std::atomic<std::uint64_t> stale_connections{0};  ///< kept ones that turned out closed and were reopened
};

}  // namespace distilld
