#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "pipeline/teacher/endpoint_probe.hpp"
#include "pipeline/teacher/remote_teacher.hpp"
#include "pipeline/teacher/replica_comparison.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "pipeline/teacher/transport/traffic_counters.hpp"

namespace distilld {

/// An endpoint of a teacher, and whether it takes part.
struct Replica {
    std::unique_ptr<TeacherEndpoint> at;
    std::shared_ptr<const TrafficCounters> traffic;
    bool absent = false;   ///< was not up, or did not pass, or is in doubt: it has to pass the probe first
    bool joining = false;  ///< a fetch is probing it
    std::string not_up;    ///< what it said last while the probe waited for it
    std::optional<FetchError> not_joined;  ///< what came of the last try to join
};

/// The endpoints of one teacher: which of them take part, judged by the probe when the run starts, when one joins and
/// when two are found to differ. On one executor, a strand or with a single thread.
class Replicas {
  public:
    /// `options` outlives this.
    Replicas(boost::asio::any_io_executor io, const RemoteTeacherOptions& options,
             std::shared_ptr<TeacherSettings> settings);

    void add(std::unique_ptr<TeacherEndpoint> endpoint, std::shared_ptr<const TrafficCounters> traffic);
    [[nodiscard]] const std::vector<Replica>& all() const noexcept { return replicas_; }

    /// Asks all at once. When the first has passed, those that are down are not waited for; what was learnt of the
    /// first in the list that has passed is the run's teacher. Throws operation_aborted when cancelled.
    boost::asio::awaitable<Result<TeacherInfo>> probe();
    /// Of the endpoint that the run's teacher was learnt from. After probe().
    [[nodiscard]] const EndpointProbe& reference() const { return *reference_; }
    [[nodiscard]] EndpointProbeOptions probe_options(std::chrono::nanoseconds patience) const;
    [[nodiscard]] std::vector<TeacherEndpoint*> taking_part() const;

    /// Lets an endpoint take part that was not up before, or is in doubt; nothing to do for one that does. One caller
    /// probes it, others wait for what comes of that. Throws operation_aborted when cancelled.
    boost::asio::awaitable<FetchResult<void>> join(std::size_t index, std::chrono::nanoseconds deadline);

    /// The replica that is to be asked for the same micro-batch as `asked`, where one is.
    [[nodiscard]] std::optional<std::size_t> second_for(std::size_t asked, std::uint64_t micro_batch) const;
    /// Two replicas that were found to differ take part again when they have passed the probe once more: the one that
    /// does not answer as the run's teacher did stays out.
    void part(const ReplicaDifference& found);

  private:
    using Probed = std::vector<std::optional<FetchResult<EndpointProbe>>>;  // without a value: not known in time

    [[nodiscard]] static bool passed(const Probed::value_type& one) { return one && *one; }
    void report_waiting(const Probed& probed);
    void stop_waiting();
    boost::asio::awaitable<void> probe_one(std::size_t index, Probed& probed, Condition& changed);
    [[nodiscard]] bool hears(const Probed& probed) const;
    boost::asio::awaitable<void> probe_all(Probed& probed);
    Result<TeacherInfo> sum_up(Probed& probed);
    void warn(const std::string& text) const;
    void warn_of_half_precision(const Replica& replica, bool half_precision) const;

    boost::asio::any_io_executor io_;
    const RemoteTeacherOptions& options_;
    std::shared_ptr<TeacherSettings> settings_;
    std::vector<Replica> replicas_;
    std::string waiting_for_;                 ///< what was last reported to be waited for
    std::optional<EndpointProbe> reference_;  ///< what the first endpoint that was up said to the probe
    std::string reference_name_;              ///< that endpoint
    bool reproducible_ = true;                ///< all answers to the probe were the same
    Condition joined_;                        ///< a try to join has ended
};

}  // namespace distilld
