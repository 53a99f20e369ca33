#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

struct EndpointProbeOptions {
    std::chrono::nanoseconds request_deadline{0};          ///< of each request
    std::chrono::steady_clock::time_point give_up;         ///< until then an endpoint that is not up is asked again
    std::string give_up_field = "/teacher/patience_secs";  ///< what says so
    /// The longest that a server which is not up may put us off with Retry-After.
    std::chrono::nanoseconds max_retry_after = std::chrono::seconds(60);
    /// Sequences of a micro-batch, and positions of each: whether the endpoint takes so many is found out.
    std::uint32_t batch_rows = 1;
    std::uint32_t batch_columns = 1;
    std::function<void(const FetchError&)> on_not_up;  ///< told whenever it was found not to be up. May be empty
};

/// How long to wait before an endpoint that was found not to be up `attempts` times is asked again: longer each time,
/// and what the server asked for, up to a bound.
[[nodiscard]] std::chrono::nanoseconds probe_pause(std::uint32_t attempts,
                                                   std::optional<std::chrono::milliseconds> retry_after,
                                                   std::chrono::nanoseconds max_retry_after) noexcept;

/// What a probe learnt of one endpoint.
struct EndpointProbe {
    TeacherTargets targets;              ///< the answer to the probe's tokens
    bool deterministic = true;           ///< the same tokens again gave the same bytes
    std::optional<HeadOffer> head;       ///< with hidden states
    std::optional<TeacherTargets> told;  ///< with hidden states: the teacher's own rows of the probe's tokens
    TokenizerSigns tokenizer;            ///< what the server tells of it
    std::string note;                    ///< how it could be asked better; empty: nothing to say
    bool half_precision = false;         ///< fp32 rows of logits that look like bf16's or fp16's
};

/// Waits until the endpoint is up, lets its protocol learn how to speak to it and checks its answer to a few tokens;
/// the endpoint's codec is set when all is well. The failure's kind is one for which not_up() holds when the endpoint
/// did not come up; any other means that it is up and no teacher for us. Throws operation_aborted when cancelled.
boost::asio::awaitable<FetchResult<EndpointProbe>> probe_endpoint(TeacherEndpoint& endpoint,
                                                                  EndpointProbeOptions options);

/// The same rows, byte for byte.
[[nodiscard]] bool same_targets(const TeacherTargets& a, const TeacherTargets& b);

}  // namespace distilld
