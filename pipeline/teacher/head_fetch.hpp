#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/teacher_head.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/teacher/probe/endpoint_probe.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

struct HeadFetchOptions {
    std::chrono::nanoseconds request_deadline{0};   ///< per piece
    std::chrono::steady_clock::time_point give_up;  ///< deadline for retries of an endpoint that is not up
    std::uint64_t max_bytes = std::uint64_t{16} << 30U;
    std::uint64_t piece_bytes = std::uint64_t{32} << 20U;
};

/// Fetches the head for hidden states once, however often the teacher is probed. One executor.
class HeadTaking {
  public:
    /// Fetches the head that `first` announced into info.head, from the first endpoint that delivers it, and sets the
    /// fingerprint and the vocabulary size. A head that was already taken is not fetched again; info.head stays empty.
    /// Throws operation_aborted when cancelled. The arguments must outlive the call.
    boost::asio::awaitable<Result<void>> take(std::vector<TeacherEndpoint*> endpoints, const EndpointProbe& first,
                                              HeadFetchOptions options, TeacherInfo& info);

    [[nodiscard]] const HeadFetchCounters& counters() const noexcept { return counters_; }

  private:
    /// Describes a head that was already passed to the caller.
    struct Given {
        std::string sha256;
        std::string fingerprint;  ///< of the resulting rows
        std::uint32_t rows = 0;
    };

    std::optional<Given> given_;
    HeadFetchCounters counters_;
};

}  // namespace distilld
