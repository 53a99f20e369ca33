#include "server/jobs/routes/job_estimator.hpp"

#include <array>
#include <utility>
#include <vector>

#include "server/estimate/run_estimate.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

/// Jobs that are looked at per state, the newest first.
constexpr std::uint32_t kJobsLookedAt = 20;
constexpr std::array kStatesLookedAt{api::JobState::running, api::JobState::succeeded};

asio::awaitable<std::vector<MeasuredRun>> jobs_with_speeds(JobManager& manager) {
    std::vector<MeasuredRun> found;
    for (const auto state : kStatesLookedAt) {
        JobQuery query;
        query.limit = kJobsLookedAt;
        query.state = state;
        const JobListing listed = co_await manager.list(query);
        for (const api::Job& one : listed.jobs) {
            if (one.kind != api::JobKind::train || !one.progress || !(one.progress->tokens_per_second > 0)) {
                continue;
            }
            auto whole = co_await manager.get(one.id);
            if (whole && whole->progress) {
                found.push_back({whole->resolved_spec_json, whole->dtype, whole->progress->tokens_per_second});
            }
        }
    }
    co_return found;
}

}  // namespace

asio::awaitable<boost::json::object> estimate_of(JobManager& manager, const Estimates& estimates,
                                                 JobOutcome validated) {
    EstimateRequest request;
    request.spec_json = std::move(validated.job.resolved_spec_json);
    if (estimates.files) {
        request.files = estimates.files(*validated.spec);
    }
    request.others = co_await jobs_with_speeds(manager);
    const Result<boost::json::object> made = co_await estimates.run(std::move(request));
    if (made) {
        co_return *made;
    }
    RunEstimate none;
    none.notes.push_back("there is no estimate: " + made.error().message);
    co_return to_json_object(none);
}

}  // namespace distilld
