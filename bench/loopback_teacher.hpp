#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/core/time.hpp"

namespace distilld::bench {

struct LoopbackTeacherOptions {
    std::vector<Nanos> latencies;  ///< of the first request of micro-batch n; others draw from the same list
    double failure_rate = 0;       ///< share of requests answered 500 after their latency
    std::uint64_t seed = 1;
    bool json_answers = false;  ///< ignores the wish for binary outputs, as some servers do
};

/// A real HTTP server on 127.0.0.1 that speaks KServe v2 with binary tensors and answers each request after a drawn
/// latency, without computing anything: the far teacher of an experiment. The micro-batch number stands in the first
/// four ids of the request (ids_of_number). Own thread; stops when destroyed.
class LoopbackTeacher {
  public:
    virtual ~LoopbackTeacher() = default;
    [[nodiscard]] virtual std::string url() const = 0;
    [[nodiscard]] virtual std::uint64_t requests() const = 0;
};

std::unique_ptr<LoopbackTeacher> make_loopback_teacher(LoopbackTeacherOptions options);

/// Ids that carry a micro-batch number, each below 128, so that any vocabulary has them.
inline constexpr std::size_t kNumberIds = 4;
std::vector<std::int32_t> ids_of_number(std::uint64_t number);
std::uint64_t number_of_ids(const std::vector<std::int32_t>& ids);

}  // namespace distilld::bench
