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

#include "base/error.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "pipeline/core/job_spec.hpp"
#include "server/sinks/sink_records.hpp"

namespace distilld::sinks {

/// Why records were not written.
struct SinkFailure {
    std::string message;                                     ///< names the file or the server
    bool for_good = false;                                   ///< trying again is of no use: these records are lost
    std::optional<std::chrono::milliseconds> retry_after{};  ///< as a server asked
};

/// What came of a write that went through.
struct Written {
    std::uint64_t refused = 0;  ///< records among those given that the server would not have
    std::string why;            ///< in its words
};

[[noreturn]] inline void throw_exception_from_error(const SinkFailure& failure, const boost::source_location&) {
    throw std::runtime_error(failure.message);
}

using WriteResult = boost::system::result<Written, SinkFailure>;

/// Takes the records of one run somewhere. Everything but construction happens on a thread of its own, which may be
/// held up as long as need be: what comes meanwhile waits in a bounded queue (sink_runner.hpp).
class Sink {
  public:
    virtual ~Sink() = default;

    /// Writes the records, in order. With a failure that is not for good the same records come again, perhaps with some
    /// of them written; the sink sees to it that none is there twice. Throws operation_aborted when it is cancelled,
    /// because the time for the last records of a run is over.
    virtual boost::asio::awaitable<WriteResult> write(const std::vector<SinkItem>& items) = 0;
};

/// The run that the sinks are to tell of.
struct SinkContext {
    JobSpec spec;                  ///< with what is in force
    std::string spec_json;         ///< the same as JSON, without what may be secret (public_spec())
    std::string job_id;            ///< the service's; empty: `distilld run`
    std::uint64_t first_step = 0;  ///< steps up to this one were done, and told of, by earlier attempts
    StepPlan steps{};
    bool goes_on = false;                                      ///< the run was interrupted and goes on, if from step 0
    std::function<std::string(const char* name)> environment;  ///< of the process; empty = not set
};

/// Makes a sink; null when the run does not ask for it. Blocks on files, never on a network. `thread` is the executor
/// of the sink's own thread. Changes nothing that is there: what speaks against the sink is found before the training
/// begins, and names the spec field.
using SinkFactory = Result<std::unique_ptr<Sink>> (*)(const SinkContext& context, boost::asio::any_io_executor thread);

}  // namespace distilld::sinks
