#include "server/jobs/job_metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "server/jobs/process_metrics.hpp"

namespace distilld {
namespace {

using Counter = prometheus::Counter;
using Gauge = prometheus::Gauge;
using Labels = std::map<std::string, std::string>;
template <class T>
using Family = prometheus::Family<T>;

/// Fixed bounds in seconds, from a cached answer to a submit that waits for the disk.
const prometheus::Histogram::BucketBoundaries kDurationBuckets{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                               0.5,   1,      2.5,   5,    10,    30,   60};

/// What a counter of ours grows by when a counter of a worker goes from `before` to `now`. A worker may begin anew;
/// ours never goes back.
double growth(double before, double now) {
    return std::isfinite(now) && now > before ? now - before : 0.0;
}
double growth(std::uint64_t before, std::uint64_t now) {
    return now > before ? static_cast<double>(now - before) : 0.0;
}

/// Seconds of teacher work that the student did not wait for.
double hidden_seconds(const ProgressEvent& progress) {
    for (const auto& stage : progress.stages) {
        if (stage.stage == "teacher") {
            const double hidden = stage.busy_seconds * progress.teacher_hidden_fraction;
            return std::isfinite(hidden) ? hidden : 0.0;
        }
    }
    return 0.0;
}

/// Gauges of one job, which go when it has been over for a while.
struct JobGauges {
    Gauge* loss = nullptr;
    Gauge* tokens_per_second = nullptr;
    Gauge* step = nullptr;
    Gauge* stall_ratio = nullptr;
    Gauge* in_flight = nullptr;
    Gauge* limit = nullptr;
    Gauge* buffered = nullptr;
};

struct JobRun {
    JobGauges gauges;
    ProgressEvent last;  ///< counters at the last progress of this run
    double hidden = 0;
    std::uint64_t micro_batch_tokens = 0;
    std::optional<std::chrono::steady_clock::time_point> ended;
};

class PrometheusJobMetrics final : public JobMetrics {
  public:
    explicit PrometheusJobMetrics(JobMetricsOptions options) : options_(std::move(options)), process_(registry_) {
        for (const auto state : {api::JobState::queued, api::JobState::running, api::JobState::succeeded,
                                 api::JobState::failed, api::JobState::cancelled}) {
            jobs_.Add({{"state", api::to_string(state)}}).Set(0);
            if (api::is_terminal(state)) {
                finished_.Add({{"result", api::to_string(state)}});
            }
        }
        build_info_.Add({{"version", options_.version}}).Set(1);
    }

    void set_job_counts(const std::vector<std::pair<api::JobState, std::uint64_t>>& counts) override {
        std::map<api::JobState, std::uint64_t> all;
        for (const auto& [state, count] : counts) {
            all[state] = count;
        }
        for (const auto state : {api::JobState::queued, api::JobState::running, api::JobState::succeeded,
                                 api::JobState::failed, api::JobState::cancelled}) {
            jobs_.Add({{"state", api::to_string(state)}}).Set(static_cast<double>(all[state]));
        }
    }

    void run_started(const std::string& job_id) override {
        const std::lock_guard lock(mutex_);
        auto& run = runs_[job_id];
        const auto gauges = run.gauges;
        run = JobRun{};
        run.gauges = gauges.loss != nullptr ? gauges : make_gauges(job_id);
    }

    void run_details(const std::string& job_id, std::uint64_t first_step, std::uint64_t micro_batch_tokens) override {
        const std::lock_guard lock(mutex_);
        const auto found = runs_.find(job_id);
        if (found == runs_.end()) {
            return;
        }
        found->second.last.step = first_step;
        found->second.micro_batch_tokens = micro_batch_tokens;
    }

    void progress(const std::string& job_id, const ProgressEvent& now) override {
        const std::lock_guard lock(mutex_);
        const auto found = runs_.find(job_id);
        if (found == runs_.end()) {
            return;
        }
        auto& run = found->second;
        count_training(run, now);
        count_stages(run.last, now);
        count_teacher(run, now);
        show(run.gauges, now);
        run.last = now;
    }

    void run_ended(const std::string& job_id) override {
        const std::lock_guard lock(mutex_);
        if (const auto found = runs_.find(job_id); found != runs_.end()) {
            found->second.ended = std::chrono::steady_clock::now();
            found->second.gauges.in_flight->Set(0);
            found->second.gauges.tokens_per_second->Set(0);
        }
    }

    void job_finished(api::JobState result) override {
        finished_.Add({{"result", api::to_string(result)}}).Increment();
    }

    void http_request(const std::string& method, const std::string& route, unsigned status,
                      std::chrono::nanoseconds duration) override {
        const auto code = std::to_string(status);
        http_requests_.Add({{"method", method}, {"route", route}, {"code", code}}).Increment();
        http_duration_.Add({{"route", route}, {"code", code}}, kDurationBuckets)
            .Observe(std::chrono::duration<double>(duration).count());
    }

    std::string text() override {
        {
            const std::lock_guard lock(mutex_);
            drop_old_gauges();
            process_.refresh();
        }
        return prometheus::TextSerializer().Serialize(registry_.Collect());
    }

  private:
    Family<Counter>& counter(const char* name, const char* help) {
        return prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
    }
    Family<Gauge>& gauge(const char* name, const char* help) {
        return prometheus::BuildGauge().Name(name).Help(help).Register(registry_);
    }

    JobGauges make_gauges(const std::string& job_id) {
        const Labels labels{{"job_id", job_id}};
        return {&loss_.Add(labels),    &tokens_per_second_.Add(labels), &step_.Add(labels),
                &stall_.Add(labels),   &in_flight_.Add(labels),         &limit_.Add(labels),
                &buffered_.Add(labels)};
    }

    static void show(JobGauges& gauges, const ProgressEvent& now) {
        gauges.loss->Set(now.loss);
        gauges.tokens_per_second->Set(now.tokens_per_second);
        gauges.step->Set(static_cast<double>(now.step));
        gauges.stall_ratio->Set(now.stall_fraction);
        gauges.in_flight->Set(now.fetch.in_flight);
        gauges.limit->Set(now.fetch.concurrency);
        gauges.buffered->Set(now.fetch.buffered);
    }

    void count_training(JobRun& run, const ProgressEvent& now) {
        steps_.Increment(growth(run.last.step, now.step));
        tokens_student_.Increment(growth(run.last.tokens, now.tokens));
        nonfinite_.Increment(growth(run.last.nonfinite_steps, now.nonfinite_steps));
    }

    void count_stages(const ProgressEvent& before, const ProgressEvent& now) {
        for (const auto& stage : now.stages) {
            const auto same = std::find_if(before.stages.begin(), before.stages.end(),
                                           [&](const StageTimes& other) { return other.stage == stage.stage; });
            const StageTimes zero{};
            const auto& last = same == before.stages.end() ? zero : *same;
            stage_busy_.Add({{"stage", stage.stage}}).Increment(growth(last.busy_seconds, stage.busy_seconds));
            stage_wait_.Add({{"stage", stage.stage}, {"reason", "input"}})
                .Increment(growth(last.wait_input_seconds, stage.wait_input_seconds));
            stage_wait_.Add({{"stage", stage.stage}, {"reason", "output"}})
                .Increment(growth(last.wait_output_seconds, stage.wait_output_seconds));
        }
    }

    void count_teacher(JobRun& run, const ProgressEvent& now) {
        const auto& last = run.last.fetch;
        const auto& fetch = now.fetch;
        teacher_requests_.Increment(growth(last.requests, fetch.requests));
        teacher_retries_.Increment(growth(last.retries, fetch.retries));
        teacher_hedges_.Increment(growth(last.hedges, fetch.hedges));
        teacher_bytes_.Increment(growth(last.bytes_received, fetch.bytes_received));
        const auto answered = growth(last.completed, fetch.completed);
        tokens_teacher_.Increment(answered * static_cast<double>(run.micro_batch_tokens));
        for (const auto& [kind, count] : fetch.failures) {
            const auto before = last.failures.find(kind);
            teacher_failures_.Add({{"kind", kind}})
                .Increment(growth(before == last.failures.end() ? 0 : before->second, count));
        }
        // The product of a share and a time may shrink a little between two reports: count from the highest seen.
        const auto hidden = hidden_seconds(now);
        overlap_.Increment(growth(run.hidden, hidden));
        run.hidden = std::max(run.hidden, hidden);
    }

    void drop_old_gauges() {
        const auto now = std::chrono::steady_clock::now();
        for (auto run = runs_.begin(); run != runs_.end();) {
            if (!run->second.ended || now - *run->second.ended < options_.gauge_grace) {
                ++run;
                continue;
            }
            auto& gauges = run->second.gauges;
            loss_.Remove(gauges.loss);
            tokens_per_second_.Remove(gauges.tokens_per_second);
            step_.Remove(gauges.step);
            stall_.Remove(gauges.stall_ratio);
            in_flight_.Remove(gauges.in_flight);
            limit_.Remove(gauges.limit);
            buffered_.Remove(gauges.buffered);
            run = runs_.erase(run);
        }
    }

    JobMetricsOptions options_;
    prometheus::Registry registry_;
    ProcessMetrics process_;
    std::mutex mutex_;  ///< guards runs_ and process_; prometheus-cpp locks its own
    std::map<std::string, JobRun> runs_;

    Family<Gauge>& jobs_ = gauge("distilld_jobs", "Jobs in the store, by state.");
    Family<Counter>& finished_ =
        counter("distilld_jobs_finished_total", "Jobs that came to an end since the service started, by result.");
    Counter& steps_ = counter("distilld_steps_total", "Optimizer steps done by all jobs.").Add({});
    Family<Counter>& tokens_ =
        counter("distilld_tokens_total", "Input positions: trained on by students, answered for by teachers.");
    Counter& tokens_student_ = tokens_.Add({{"role", "student"}});
    Counter& tokens_teacher_ = tokens_.Add({{"role", "teacher"}});
    Counter& nonfinite_ =
        counter("distilld_nonfinite_steps_total", "Steps skipped because a gradient was not finite.").Add({});
    Family<Counter>& stage_busy_ = counter("distilld_stage_busy_seconds_total", "Time a stage spent at work.");
    Family<Counter>& stage_wait_ =
        counter("distilld_stage_wait_seconds_total", "Time a stage waited for its input, or for room at its output.");
    Counter& overlap_ =
        counter("distilld_overlap_seconds_total", "Teacher time during which the student did not wait.").Add({});
    Counter& teacher_requests_ =
        counter("distilld_teacher_requests_total", "Requests sent to teachers, retries and hedges included.").Add({});
    Counter& teacher_retries_ =
        counter("distilld_teacher_retries_total", "Requests sent again after a failure.").Add({});
    Counter& teacher_hedges_ =
        counter("distilld_teacher_hedges_total", "Second requests for answers that were slow.").Add({});
    Counter& teacher_bytes_ = counter("distilld_teacher_received_bytes_total", "Bytes of teacher answers.").Add({});
    Family<Counter>& teacher_failures_ =
        counter("distilld_teacher_failures_total", "Requests to teachers that failed, by kind.");

    Family<Gauge>& loss_ = gauge("distilld_job_loss", "Loss of the newest step of an active job, in nats a token.");
    Family<Gauge>& tokens_per_second_ =
        gauge("distilld_job_tokens_per_second", "Input positions an active job trains on in a second.");
    Family<Gauge>& step_ = gauge("distilld_job_step", "Optimizer steps an active job has done.");
    Family<Gauge>& stall_ =
        gauge("distilld_job_stall_ratio", "Share of the run's time that the student waited for input.");
    Family<Gauge>& in_flight_ = gauge("distilld_job_teacher_in_flight", "Teacher requests under way.");
    Family<Gauge>& limit_ =
        gauge("distilld_job_teacher_concurrency_limit", "Teacher requests that may be under way at once.");
    Family<Gauge>& buffered_ =
        gauge("distilld_job_prefetch_buffer_items", "Micro-batches answered by the teacher and not yet trained on.");

    Family<Counter>& http_requests_ = counter("distilld_http_requests_total", "HTTP requests answered.");
    Family<prometheus::Histogram>& http_duration_ = prometheus::BuildHistogram()
                                                        .Name("distilld_http_request_duration_seconds")
                                                        .Help("Time from the request's head to the answer's end.")
                                                        .Register(registry_);
    Family<Gauge>& build_info_ = gauge("distilld_build_info", "Version of the running program; always 1.");
};

}  // namespace

std::shared_ptr<JobMetrics> make_job_metrics(JobMetricsOptions options) {
    return std::make_shared<PrometheusJobMetrics>(std::move(options));
}

}  // namespace distilld
