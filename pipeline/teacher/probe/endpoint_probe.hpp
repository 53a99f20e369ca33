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
    std::chrono::nanoseconds request_deadline{0};          ///< per request
    std::chrono::steady_clock::time_point give_up;         ///< deadline for retries of an endpoint that is not up
    std::string give_up_field = "/teacher/patience_secs";  ///< the field that sets it
    /// Limit of Retry-After of a server that is not up.
    std::chrono::nanoseconds max_retry_after = std::chrono::seconds(60);
    /// Sequences of a micro-batch and positions of each; the probe sends a batch of this size.
    std::uint32_t batch_rows = 1;
    std::uint32_t batch_columns = 1;
    std::function<void(const FetchError&)> on_not_up;  ///< called each time the endpoint is not up. May be empty
};

/// Backoff before asking an endpoint again after `attempts` failures: it grows, respects Retry-After, and is bounded.
[[nodiscard]] std::chrono::nanoseconds probe_pause(std::uint32_t attempts,
                                                   std::optional<std::chrono::milliseconds> retry_after,
                                                   std::chrono::nanoseconds max_retry_after) noexcept;

/// Result of probing one endpoint.
struct EndpointProbe {
    TeacherTargets targets;              ///< the answer to the probe's tokens
    bool deterministic = true;           ///< a repetition gave the same bytes
    std::optional<HeadOffer> head;       ///< with hidden states
    std::optional<TeacherTargets> told;  ///< with hidden states: the teacher's own rows of the probe's tokens
    TokenizerSigns tokenizer;            ///< what the server reports
    std::string note;                    ///< a hint for faster requests; empty: none
    bool half_precision = false;         ///< fp32 rows of logits that look like bf16 or fp16
};

/// Waits until the endpoint is up, negotiates its protocol and checks its answer to a few tokens; on success, sets the
/// endpoint's codec. A failure with is_outage() means that the endpoint did not come up; any other failure means that
/// it is up but unusable. Throws operation_aborted when cancelled.
boost::asio::awaitable<FetchResult<EndpointProbe>> probe_endpoint(TeacherEndpoint& endpoint,
                                                                  EndpointProbeOptions options);

/// Whether the rows are the same, byte for byte.
[[nodiscard]] bool same_targets(const TeacherTargets& a, const TeacherTargets& b);

}  // namespace distilld
