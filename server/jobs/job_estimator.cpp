#include "server/jobs/job_estimator.hpp"

#include <array>
#include <utility>
#include <vector>

#include "api/job_spec_json.hpp"
#include "server/estimate/run_estimate.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

/// Of each state so many jobs are looked at, the newest.
constexpr std::uint32_t kJobsLookedAt = 20;
constexpr std::array kStatesLookedAt{api::JobState::running, api::JobState::succeeded};

class Estimator final : public JobEstimator {
  public:
    Estimator(JobManager& manager, Estimates estimates) : manager_(manager), estimates_(std::move(estimates)) {}

    asio::awaitable<boost::json::object> estimate(api::Job job) override {
        EstimateRequest request;
        request.spec_json = job.resolved_spec_json;
        if (const auto spec = api::parse_job_spec(job.resolved_spec_json); spec && estimates_.files) {
            request.files = estimates_.files(*spec);
        }
        request.others = co_await jobs_with_speeds();
        const Result<boost::json::object> made = co_await estimates_.run(std::move(request));
        if (made) {
            co_return *made;
        }
        RunEstimate none;
        none.notes.push_back("there is no estimate: " + made.error().message);
        co_return to_json_object(none);
    }

  private:
    asio::awaitable<std::vector<MeasuredRun>> jobs_with_speeds() {
        std::vector<MeasuredRun> found;
        for (const auto state : kStatesLookedAt) {
            JobQuery query;
            query.limit = kJobsLookedAt;
            query.state = state;
            const JobListing listed = co_await manager_.list(query);
            for (const api::Job& one : listed.jobs) {
                if (one.kind != api::JobKind::train || !one.progress || !(one.progress->tokens_per_second > 0)) {
                    continue;
                }
                auto whole = co_await manager_.get(one.id);
                if (whole && whole->progress) {
                    found.push_back({whole->resolved_spec_json, whole->dtype, whole->progress->tokens_per_second});
                }
            }
        }
        co_return found;
    }

    JobManager& manager_;
    Estimates estimates_;
};

}  // namespace

std::unique_ptr<JobEstimator> make_job_estimator(JobManager& manager, Estimates estimates) {
    return std::make_unique<Estimator>(manager, std::move(estimates));
}

}  // namespace distilld
