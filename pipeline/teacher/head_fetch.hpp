#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/teacher_head.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

struct HeadFetchOptions {
    std::chrono::nanoseconds request_deadline{0};   ///< of each piece
    std::chrono::steady_clock::time_point give_up;  ///< until then an endpoint that is not up is asked again
    std::uint64_t max_bytes = std::uint64_t{16} << 30U;
    std::uint64_t piece_bytes = std::uint64_t{32} << 20U;
};

/// A head that gives, of the hidden states of the probe's tokens, what the teacher itself says of them.
struct ProvenHead {
    std::shared_ptr<const TeacherHead> head;
    std::string fingerprint;       ///< of the rows that it gives: as of a teacher of logits
    std::uint64_t file_bytes = 0;  ///< of the file that it came in
};

/// Fetches the head that an endpoint offers, in pieces where its server knows ranges, and checks it: its SHA-256, its
/// width against that of `hidden`, the endpoint's answer to the probe's tokens, and what it makes of `hidden` against
/// `told`, the teacher's own rows of these tokens, when there are some. The head stays in memory as it was sent. On the
/// endpoint's executor; checks run on the decode executor. Throws operation_aborted when cancelled.
boost::asio::awaitable<FetchResult<ProvenHead>> fetch_head(TeacherEndpoint& endpoint, HeadOffer offer,
                                                           TeacherTargets hidden, std::optional<TeacherTargets> told,
                                                           HeadFetchOptions options);

}  // namespace distilld
