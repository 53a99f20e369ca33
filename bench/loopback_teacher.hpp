#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/core/time.hpp"

namespace distilld::bench {

struct LoopbackTeacherOptions {
    std::vector<Nanos> latencies;   ///< of the first request of micro-batch n; others draw from the same list
    double failure_rate = 0;        ///< share of requests answered 500 after their latency
    std::uint64_t seed = 1;
    std::uint32_t vocabulary = 32000;
};

/// A real HTTP server on 127.0.0.1 that speaks KServe v2 with binary tensors and answers each request after a drawn
/// latency, without computing anything: the far teacher of an experiment. The micro-batch number stands in the first
/// two ids of the request (number_to_ids). Own thread; stops when destroyed.
class LoopbackTeacher {
  public:
    virtual ~LoopbackTeacher() = default;
    [[nodiscard]] virtual std::string url() const = 0;
    [[nodiscard]] virtual std::uint64_t requests() const = 0;
};

std::unique_ptr<LoopbackTeacher> make_loopback_teacher(LoopbackTeacherOptions options);

/// Two ids that carry a micro-batch number, each below 2^14.
inline constexpr std::int32_t kIdBase = 1 << 14;

}  // namespace distilld::bench
