#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/teacher/endpoint_probe.hpp"
#include "pipeline/teacher/head_fetch.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Takes the head of a teacher of hidden states, once however often the teacher is probed. One executor.
class HeadTaking {
  public:
    /// The head for what `first` told, from the first of the endpoints that gives it away: into info.head, with the
    /// fingerprint and the size of the vocabulary. One that was given before is not fetched again, and info.head stays
    /// empty. Throws operation_aborted when cancelled; what is referred to must live until the end.
    boost::asio::awaitable<Result<void>> take(std::vector<TeacherEndpoint*> endpoints, const EndpointProbe& first,
                                              HeadFetchOptions options, TeacherInfo& info);

    [[nodiscard]] const HeadFetchCounters& counters() const noexcept { return counters_; }

  private:
    /// What is left here of a head that the caller was given.
    struct Given {
        std::string sha256;
        std::string fingerprint;  ///< of the rows that it gives
        std::uint32_t rows = 0;
    };

    std::optional<Given> given_;
    HeadFetchCounters counters_;
};

}  // namespace distilld
