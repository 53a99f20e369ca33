#include "server/jobs/job_estimator.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/thread_pool.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/job_spec_json.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/estimate/estimate_inputs.hpp"
#include "server/estimate/run_estimate.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

/// Of each state so many jobs are looked at, the newest.
constexpr std::uint32_t kJobsLookedAt = 20;
constexpr std::array kStatesLookedAt{api::JobState::running, api::JobState::succeeded};

bool has_dtype(Dtype wanted, const api::Job& job, const JobSpec& spec) {
    return wanted == Dtype::auto_select ? spec.student.dtype == wanted : job.dtype == to_string(wanted);
}

class Estimator final : public JobEstimator {
  public:
    explicit Estimator(JobManager& manager) : manager_(manager) {}

    asio::awaitable<boost::json::object> estimate(api::Job job) override {
        const auto spec = api::parse_job_spec(job.resolved_spec_json);
        if (!spec) {
            co_return to_json_object(RunEstimate{});  // it has been judged valid: not reached
        }
        auto estimating = run_on(thread_.get_executor(), [spec = *spec] {
            std::vector<std::string> notes;
            const EstimateInputs inputs = read_estimate_inputs(spec, notes);
            RunEstimate estimate = estimate_run(spec, inputs);
            estimate.notes.insert(estimate.notes.end(), notes.begin(), notes.end());
            return estimate;
        });
        RunEstimate estimate = co_await std::move(estimating);
        auto looking = jobs_with_speeds();
        auto others = co_await std::move(looking);
        auto comparing = run_on(thread_.get_executor(), [spec = *spec, others = std::move(others), estimate] {
            RunEstimate whole = estimate;
            add_seconds(spec, others, whole);
            return whole;
        });
        estimate = co_await std::move(comparing);
        co_return to_json_object(estimate);
    }

  private:
    asio::awaitable<std::vector<api::Job>> jobs_with_speeds() {
        std::vector<api::Job> found;
        for (const auto state : kStatesLookedAt) {
            JobQuery query;
            query.limit = kJobsLookedAt;
            query.state = state;
            auto listing = manager_.list(query);
            const JobListing listed = co_await std::move(listing);
            for (const api::Job& one : listed.jobs) {
                if (one.kind != api::JobKind::train || !one.progress || !(one.progress->tokens_per_second > 0)) {
                    continue;
                }
                auto asking = manager_.get(one.id);
                auto whole = co_await std::move(asking);
                if (whole) {
                    found.push_back(*std::move(whole));
                }
            }
        }
        co_return found;
    }

    /// The median of those that trained a student of this shape in this dtype.
    static void add_seconds(const JobSpec& spec, const std::vector<api::Job>& others, RunEstimate& estimate) {
        const std::string shape = shape_key(spec);
        if (!estimate.tokens || shape.empty()) {
            return;
        }
        std::vector<double> speeds;
        for (const api::Job& other : others) {
            const auto theirs = api::parse_job_spec(other.resolved_spec_json);
            if (theirs && has_dtype(spec.student.dtype, other, *theirs) && shape_key(*theirs) == shape) {
                speeds.push_back(other.progress->tokens_per_second);
            }
        }
        if (speeds.empty()) {
            estimate.notes.emplace_back("seconds: no job of this service has trained a student of this shape yet");
            return;
        }
        const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
        std::ranges::nth_element(speeds, middle);
        estimate.seconds = static_cast<double>(*estimate.tokens) / *middle;
        estimate.based_on = std::to_string(speeds.size()) + (speeds.size() == 1 ? " job" : " jobs") +
                            " with this student: " + std::to_string(std::llround(*middle)) + " tokens a second";
    }

    JobManager& manager_;
    asio::thread_pool thread_{1};
};

}  // namespace

std::unique_ptr<JobEstimator> make_job_estimator(JobManager& manager) {
    return std::make_unique<Estimator>(manager);
}

}  // namespace distilld
