#include "server/jobs/job_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

namespace distilld {
namespace {

using Samples = std::map<LabelValues, std::variant<double, Histogram>>;
using std::chrono::steady_clock;

/// Which counters a row is, and where it stands in the text.
enum class Scope { of_all_runs, gauge_of_a_job, histogram_of_a_job, counter_of_a_job };

Scope scope_of(const MetricRow<JobRun>& row) {
    if (row.type == MetricType::gauge) {
        return Scope::gauge_of_a_job;
    }
    if (row.type == MetricType::histogram) {
        return Scope::histogram_of_a_job;
    }
    const bool has_job = std::ranges::find(row.labels, "job_id") != row.labels.end();
    return has_job ? Scope::counter_of_a_job : Scope::of_all_runs;
}

void add(Samples& sums, const LabelValues& labels, const std::variant<double, Histogram>& more) {
    const auto [sum, is_new] = sums.try_emplace(labels, more);
    if (is_new) {
        return;
    }
    if (auto* histogram = std::get_if<Histogram>(&sum->second)) {
        histogram->add(std::get<Histogram>(more));
    } else {
        std::get<double>(sum->second) += std::get<double>(more);
    }
}

/// A run, and how much of what it counts is in our counters. Each list is by row.
struct CountedRun {
    JobRun run;
    std::vector<std::map<LabelValues, double>> counted;  ///< of counters of all runs
    std::vector<Samples> earlier;                        ///< of a job's: by its earlier runs
    std::vector<Samples> newest;                         ///< by this one, as it said last
    std::optional<steady_clock::time_point> ended;
};

class TableJobMetrics final : public JobMetrics {
  public:
    TableJobMetrics(JobMetricsOptions options, JobMetricRows rows)
        : gauge_grace_(options.gauge_grace),
          store_file_(std::move(options.store_file)),
          unix_time_(std::move(options.unix_time)),
          rows_(std::move(rows)),
          totals_(rows_.runs.size()) {
        in_order_of_text();
        service_.version = std::move(options.version);
        // A counter that needs no labels of a run is there, at 0, before the first.
        CountedRun none;
        take_in(none);
    }

    void set_job_counts(const std::vector<std::pair<api::JobState, std::uint64_t>>& counts) override {
        const std::lock_guard lock(mutex_);
        service_.jobs.clear();
        service_.jobs.insert(counts.begin(), counts.end());
    }

    void set_jobs_waiting(const std::map<std::string, std::uint64_t>& waiting) override {
        const std::lock_guard lock(mutex_);
        service_.waiting = waiting;
    }

    void set_slots(std::uint32_t busy, std::uint32_t free) override {
        const std::lock_guard lock(mutex_);
        service_.slots = {{"busy", busy}, {"free", free}};
    }

    void set_store(bool writable, std::uint64_t unsaved_events) override {
        const std::lock_guard lock(mutex_);
        service_.store = {writable, unsaved_events};
    }

    void run_started(const std::string& job_id) override {
        const std::lock_guard lock(mutex_);
        // Until the run says something, the gauges show what the run before it said last.
        CountedRun& before = runs_[job_id];
        CountedRun next;
        for (std::size_t row = 0; row < rows_.runs.size(); ++row) {
            next.earlier.push_back(of_all_runs(before, row));
        }
        next.run.progress = std::move(before.run.progress);
        next.run.last_step_time = before.run.last_step_time;
        next.run.evaluation = std::move(before.run.evaluation);
        next.run.newest_checkpoint = before.run.newest_checkpoint;
        before = std::move(next);
    }

    void run_details(const std::string& job_id, std::uint64_t first_step, std::uint64_t micro_batch_tokens) override {
        const std::lock_guard lock(mutex_);
        if (const auto found = runs_.find(job_id); found != runs_.end()) {
            found->second.run.first_step = first_step;
            found->second.run.micro_batch_tokens = micro_batch_tokens;
        }
    }

    void progress(const std::string& job_id, const ProgressEvent& progress) override {
        const std::lock_guard lock(mutex_);
        if (const auto found = runs_.find(job_id); found != runs_.end()) {
            JobRun& run = found->second.run;
            if (progress.step > run.first_step && progress.step != run.progress.step) {
                run.last_step_time = unix_time_();
            }
            run.progress = progress;
            take_in(found->second);
        }
    }

    void evaluated(const std::string& job_id, const EvaluationEvent& evaluation) override {
        const std::lock_guard lock(mutex_);
        if (const auto found = runs_.find(job_id); found != runs_.end()) {
            EvaluationEvent& newest = found->second.run.evaluation.emplace(evaluation);
            newest.samples.clear();
        }
    }

    void checkpoint_written(const std::string& job_id, const CheckpointEvent& checkpoint) override {
        const std::lock_guard lock(mutex_);
        if (const auto found = runs_.find(job_id); found != runs_.end()) {
            JobRun& run = found->second.run;
            ++run.checkpoints.count;
            run.checkpoints.bytes += checkpoint.bytes;
            run.checkpoints.seconds.observe(checkpoint.seconds);
            run.newest_checkpoint = {checkpoint.step, checkpoint.bytes, unix_time_()};
            take_in(found->second);
        }
    }

    void run_ended(const std::string& job_id) override {
        const std::lock_guard lock(mutex_);
        if (const auto found = runs_.find(job_id); found != runs_.end()) {
            found->second.ended = steady_clock::now();
            // What flowed has stopped.
            found->second.run.progress.fetch.in_flight = 0;
            found->second.run.progress.fetch.open_endpoints = 0;
            for (auto& endpoint : found->second.run.progress.fetch.endpoints) {
                endpoint.in_flight = 0;
                endpoint.open = false;
            }
            found->second.run.progress.tokens_per_second = 0;
        }
    }

    void left_queue(double waited_seconds) override {
        const std::lock_guard lock(mutex_);
        service_.queue_waits.observe(waited_seconds);
    }

    void worker_restarted() override {
        const std::lock_guard lock(mutex_);
        ++service_.worker_restarts;
    }

    void worker_oom_restarted() override {
        const std::lock_guard lock(mutex_);
        ++service_.worker_oom_restarts;
    }

    void job_finished(api::JobState result) override {
        const std::lock_guard lock(mutex_);
        ++service_.finished[result];
    }

    void webhook_attempt(const std::string& result) override {
        const std::lock_guard lock(mutex_);
        ++service_.webhook_attempts[result];
    }

    void http_request(const std::string& method, const std::string& route, unsigned status,
                      std::chrono::nanoseconds duration) override {
        const std::lock_guard lock(mutex_);
        const auto code = std::to_string(status);
        ++service_.http_requests[{code, method, route}];
        service_.http_durations[{code, route}].observe(std::chrono::duration<double>(duration).count());
    }

    std::string text() override {
        const auto usage = read_process_usage();
        const StoreFiles files = store_files();
        std::vector<MetricReading> readings;
        {
            const std::lock_guard lock(mutex_);
            drop_old_runs();
            take_in(files);
            read_rows(rows_.service, service_, readings);
            for (std::size_t row = 0; row < rows_.runs.size(); ++row) {
                readings.push_back(reading_of(rows_.runs[row], read(row)));
            }
        }
        read_rows(rows_.process, usage, readings);
        return metrics_text(readings);
    }

  private:
    void in_order_of_text() {
        std::multimap<Scope, MetricRow<JobRun>> by_scope;  // keeps the order of equal ones
        for (auto& row : rows_.runs) {
            by_scope.emplace(scope_of(row), std::move(row));
        }
        rows_.runs.clear();
        for (auto& [scope, row] : by_scope) {
            rows_.runs.push_back(std::move(row));
        }
    }

    struct StoreFiles {
        std::uint64_t bytes = 0;
        std::optional<std::filesystem::space_info> disk;
    };

    StoreFiles store_files() const {
        StoreFiles files;
        if (store_file_.empty()) {
            return files;
        }
        std::error_code error;
        for (const char* suffix : {"", "-wal", "-shm"}) {
            const auto bytes = std::filesystem::file_size(store_file_.string() + suffix, error);
            files.bytes += error ? 0 : bytes;
        }
        const auto disk = std::filesystem::space(store_file_.parent_path(), error);
        if (!error) {
            files.disk = disk;
        }
        return files;
    }

    void take_in(const StoreFiles& files) {
        if (service_.store) {
            service_.store->size_bytes = files.bytes;
        }
        service_.disks.clear();
        if (files.disk) {
            service_.disks.push_back({"", {"data", files.disk->available, files.disk->capacity}});
        }
        for (const auto& [job_id, counted] : runs_) {
            for (const auto& disk : counted.run.progress.measures.usage.disks) {
                service_.disks.emplace_back(job_id, disk);
            }
        }
    }

    /// What a run has counted. Thinned events lose nothing: the newest holds what the run has counted since it began.
    void take_in(CountedRun& counted) {
        counted.counted.resize(rows_.runs.size());
        counted.newest.assign(rows_.runs.size(), {});
        for (std::size_t row = 0; row < rows_.runs.size(); ++row) {
            const Scope scope = scope_of(rows_.runs[row]);
            if (scope == Scope::gauge_of_a_job) {
                continue;
            }
            for (const auto& sample : rows_.runs[row].read(counted.run).take()) {
                if (scope == Scope::of_all_runs) {
                    count(row, sample.labels, std::get<double>(sample.value), counted);
                } else {
                    add(counted.newest[row], sample.labels, sample.value);
                }
            }
        }
    }

    /// Adds what a run has counted since it was last asked. Its counters may begin anew or shrink a little (a product
    /// of a share and a time); ours never go back.
    void count(std::size_t row, const LabelValues& labels, double now, CountedRun& counted) {
        auto& before = counted.counted[row][labels];
        auto& total = totals_[row][labels];
        if (std::isfinite(now) && now > before) {
            total += now - before;
            before = now;
        }
    }

    std::vector<MetricSample> read(std::size_t number) const {
        const auto& row = rows_.runs[number];
        const Scope scope = scope_of(row);
        if (scope == Scope::of_all_runs) {
            return samples_of(totals_[number]);
        }
        std::vector<MetricSample> samples;
        for (const auto& [job_id, counted] : runs_) {
            auto of_job = scope == Scope::gauge_of_a_job ? row.read(counted.run).take()
                                                         : samples_of(of_all_runs(counted, number));
            for (auto& sample : of_job) {
                add_job(row, job_id, sample.labels);
                samples.push_back(std::move(sample));
            }
        }
        return samples;
    }

    /// One row, of a job's earlier runs and of the newest. Either may not have it yet.
    static Samples of_all_runs(const CountedRun& counted, std::size_t row) {
        Samples sums = row < counted.earlier.size() ? counted.earlier[row] : Samples();
        if (row < counted.newest.size()) {
            for (const auto& [labels, value] : counted.newest[row]) {
                add(sums, labels, value);
            }
        }
        return sums;
    }

    static void add_job(const MetricRow<JobRun>& row, const std::string& job_id, LabelValues& labels) {
        const auto place = std::find(row.labels.begin(), row.labels.end(), "job_id") - row.labels.begin();
        labels.insert(labels.begin() + std::min<std::ptrdiff_t>(place, std::ssize(labels)), job_id);
    }

    void drop_old_runs() {
        const auto now = steady_clock::now();
        std::erase_if(
            runs_, [&](const auto& entry) { return entry.second.ended && now - *entry.second.ended >= gauge_grace_; });
    }

    const std::chrono::milliseconds gauge_grace_;
    const std::filesystem::path store_file_;
    const std::function<double()> unix_time_;
    JobMetricRows rows_;  ///< in the order of the text
    std::mutex mutex_;    ///< guards what follows
    ServiceCounts service_;
    std::map<std::string, CountedRun> runs_;             ///< by job
    std::vector<std::map<LabelValues, double>> totals_;  ///< by row: of counters of all runs
};

}  // namespace

std::shared_ptr<JobMetrics> make_job_metrics(JobMetricsOptions options, JobMetricRows rows) {
    return std::make_shared<TableJobMetrics>(std::move(options), std::move(rows));
}

void count_event(JobMetrics& metrics, const std::string& job_id, std::uint32_t sequence_length,
                 const WorkerEvent& event) {
    if (const auto* started = std::get_if<StartedEvent>(&event)) {
        metrics.run_details(job_id, started->first_step, std::uint64_t{started->batch_size} * sequence_length);
    } else if (const auto* progress = std::get_if<ProgressEvent>(&event)) {
        metrics.progress(job_id, *progress);
    } else if (const auto* evaluation = std::get_if<EvaluationEvent>(&event)) {
        metrics.evaluated(job_id, *evaluation);
    } else if (const auto* checkpoint = std::get_if<CheckpointEvent>(&event)) {
        metrics.checkpoint_written(job_id, *checkpoint);
    }
}

}  // namespace distilld
