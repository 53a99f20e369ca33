#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/system/result.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "server/sinks/sink_records.hpp"

namespace distilld::sinks {

/// Reason of a failed write.
struct SinkFailure {
    std::string message;                                     ///< names the file or the server
    bool for_good = false;                                   ///< a retry is useless: these records are lost
    std::optional<std::chrono::milliseconds> retry_after{};  ///< requested by the server
};

/// Result of a successful write.
struct Written {
    std::uint64_t refused = 0;  ///< records that the server refused
    std::string why;            ///< the server's reason
};

[[noreturn]] inline void throw_exception_from_error(const SinkFailure& failure, const boost::source_location&) {
    throw std::runtime_error(failure.message);
}

using WriteResult = boost::system::result<Written, SinkFailure>;

/// Writes the records of one run. Everything but construction happens on its own thread, which may block; meanwhile
/// records wait in a bounded queue (sink_runner.hpp).
class Sink {
  public:
    virtual ~Sink() = default;

    /// Writes the records in order. After a temporary failure the same records are passed again, and some of them may
    /// already be written; the sink must not duplicate them. Throws operation_aborted when it is cancelled because the
    /// time for the run's last records is over.
    virtual boost::asio::awaitable<WriteResult> write(const std::vector<SinkItem>& items) = 0;
};

/// The run of the sinks.
struct SinkContext {
    JobSpec spec;                  ///< with effective values
    std::string spec_json;         ///< the same as JSON, without secrets (public_spec())
    std::string job_id;            ///< in the service; empty: `distilld run`
    std::uint64_t first_step = 0;  ///< steps up to this one were done and reported by earlier attempts
    StepPlan steps{};
    bool goes_on = false;                                      ///< continues an interrupted run, maybe from step 0
    std::function<std::string(const char* name)> environment;  ///< of the process; empty = not set
    bool replaces = false;  ///< an earlier attempt, which lost the run's folders, may still have its files open
};

/// Creates a sink; null if the run does not request it. Blocks on files, never on a network. `thread` is the executor
/// of the sink's own thread. Existing data is left unchanged: errors are found before training begins and name the spec
/// field.
using SinkFactory = Result<std::unique_ptr<Sink>> (*)(const SinkContext& context, boost::asio::any_io_executor thread);

}  // namespace distilld::sinks
