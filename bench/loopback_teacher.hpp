#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "base/time.hpp"

namespace distilld::bench {

/// What an endpoint that is at fault does with each micro-batch. Its probe passes.
enum class EndpointFault { none, overloaded, retry_after, server_error, reset, timeout };
inline constexpr std::array kEndpointFaultNames{
    EnumName<EndpointFault>{"none", EndpointFault::none},
    EnumName<EndpointFault>{"503", EndpointFault::overloaded},
    EnumName<EndpointFault>{"503-retry-after", EndpointFault::retry_after},  // five seconds
    EnumName<EndpointFault>{"500", EndpointFault::server_error},
    EnumName<EndpointFault>{"reset", EndpointFault::reset},      // closed in the middle of the answer
    EnumName<EndpointFault>{"timeout", EndpointFault::timeout},  // no answer
};

struct LoopbackTeacherOptions {
    std::vector<Nanos> latencies;  ///< of the first request of micro-batch n; others draw from the same list
    double failure_rate = 0;       ///< share of requests answered 500 after their latency
    std::uint64_t seed = 1;
    std::uint32_t endpoints = 1;
    double slow_factor = 1;                     ///< the last endpoint takes so many times as long as its peers
    EndpointFault fault = EndpointFault::none;  ///< of the last endpoint
    bool json_answers = false;                  ///< ignores the wish for binary outputs, as some servers do
};

/// A real HTTP server on 127.0.0.1 (one an endpoint) that speaks KServe v2 with binary tensors and answers each request
/// after a drawn latency, without computing anything: the far teacher of an experiment. The micro-batch number stands
/// in the first four ids of the request (ids_of_number). Own thread; stops when destroyed.
class LoopbackTeacher {
  public:
    virtual ~LoopbackTeacher() = default;
    [[nodiscard]] virtual const std::vector<std::string>& urls() const = 0;  ///< one an endpoint
    [[nodiscard]] virtual std::uint64_t requests() const = 0;
};

std::unique_ptr<LoopbackTeacher> make_loopback_teacher(LoopbackTeacherOptions options);

/// Ids that carry a micro-batch number, each below 128, so that any vocabulary has them.
inline constexpr std::size_t kNumberIds = 4;
std::vector<std::int32_t> ids_of_number(std::uint64_t number);
std::uint64_t number_of_ids(const std::vector<std::int32_t>& ids);

}  // namespace distilld::bench
