#include "server/jobs/metrics/job_metrics.hpp"

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

/// Which counters a row has, and where it stands in the text.
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

}  // namespace

JobMetrics::JobMetrics(JobMetricsOptions options, JobMetricRows rows)
    : gauge_grace_(options.gauge_grace),
      store_file_(std::move(options.store_file)),
      unix_time_(std::move(options.unix_time)),
      links_(std::move(options.links)),
      rows_(std::move(rows)),
      totals_(rows_.runs.size()) {
    in_order_of_text();
    service_.version = std::move(options.version);
    // A counter without labels of a run exists before the first run, at 0.
    CountedRun none;
    take_in(none);
}

void JobMetrics::run_started(const std::string& job_id) {
    const std::lock_guard lock(mutex_);
    // Until the run reports something, the gauges show the last values of the run before it.
    CountedRun& before = runs_[job_id];
    CountedRun next;
    for (std::size_t row = 0; row < rows_.runs.size(); ++row) {
        next.earlier.push_back(of_all_runs(before, row));
    }
    next.run.progress = std::move(before.run.progress);
    next.run.last_step_time = before.run.last_step_time;
    next.run.evaluation = std::move(before.run.evaluation);
    next.run.figures = std::move(before.run.figures);
    next.run.newest_checkpoint = before.run.newest_checkpoint;
    before = std::move(next);
}

void JobMetrics::run_details(const std::string& job_id, std::uint64_t first_step, std::uint64_t micro_batch_tokens,
                             std::uint32_t replicas, std::uint32_t ranks) {
    const std::lock_guard lock(mutex_);
    if (const auto found = runs_.find(job_id); found != runs_.end()) {
        found->second.run.first_step = first_step;
        found->second.run.micro_batch_tokens = micro_batch_tokens;
        found->second.run.replicas = replicas;
        found->second.run.ranks = ranks;
    }
}

void JobMetrics::progress(const std::string& job_id, const ProgressEvent& progress) {
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

void JobMetrics::evaluated(const std::string& job_id, const EvaluationEvent& evaluation) {
    const std::lock_guard lock(mutex_);
    if (const auto found = runs_.find(job_id); found != runs_.end()) {
        EvaluationEvent& newest = found->second.run.evaluation.emplace(evaluation);
        newest.samples.clear();
    }
}

void JobMetrics::judged(const std::string& job_id, const FiguresEvent& figures) {
    const std::lock_guard lock(mutex_);
    if (const auto found = runs_.find(job_id); found != runs_.end()) {
        JobRun& run = found->second.run;
        ++run.eval_programs.at(figures.problem.empty() ? "figures" : "failed");
        if (figures.problem.empty()) {
            run.figures = figures;
        }
        take_in(found->second);
    }
}

void JobMetrics::checkpoint_written(const std::string& job_id, const CheckpointEvent& checkpoint) {
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

void JobMetrics::run_ended(const std::string& job_id) {
    const std::lock_guard lock(mutex_);
    if (const auto found = runs_.find(job_id); found != runs_.end()) {
        found->second.ended = steady_clock::now();
        // Nothing is in flight any more.
        found->second.run.progress.fetch.in_flight = 0;
        found->second.run.progress.fetch.open_endpoints = 0;
        for (auto& endpoint : found->second.run.progress.fetch.endpoints) {
            endpoint.in_flight = 0;
            endpoint.open = false;
        }
        found->second.run.progress.tokens_per_second = 0;
    }
}

void JobMetrics::http_request(const std::string& method, const std::string& route, unsigned status,
                              std::chrono::nanoseconds duration) {
    const std::lock_guard lock(mutex_);
    const auto code = std::to_string(status);
    ++service_.http_requests[{code, method, route}];
    service_.http_durations[{code, route}].observe(std::chrono::duration<double>(duration).count());
}

std::string JobMetrics::text() {
    const auto usage = read_process_usage();
    const StoreFiles files = store_files();
    std::vector<MetricReading> readings;
    {
        const std::lock_guard lock(mutex_);
        drop_old_runs();
        take_in(files);
        if (links_) {
            service_.links = links_();
        }
        read_rows(rows_.service, service_, readings);
        for (std::size_t row = 0; row < rows_.runs.size(); ++row) {
            readings.push_back(reading_of(rows_.runs[row], read(row)));
        }
    }
    read_rows(rows_.process, usage, readings);
    return metrics_text(readings);
}

void JobMetrics::in_order_of_text() {
    std::multimap<Scope, MetricRow<JobRun>> by_scope;  // keeps the order within a scope
    for (auto& row : rows_.runs) {
        by_scope.emplace(scope_of(row), std::move(row));
    }
    rows_.runs.clear();
    for (auto& [scope, row] : by_scope) {
        rows_.runs.push_back(std::move(row));
    }
}

JobMetrics::StoreFiles JobMetrics::store_files() const {
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

void JobMetrics::take_in(const StoreFiles& files) {
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

/// Takes in the counts of a run. Thinning loses nothing: the newest event has all counts since the run began.
void JobMetrics::take_in(CountedRun& counted) {
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

/// Adds what a run has counted since the last call. Its counters may restart or shrink a little (a product of a share
/// and a time); ours never decrease.
void JobMetrics::count(std::size_t row, const LabelValues& labels, double now, CountedRun& counted) {
    auto& before = counted.counted[row][labels];
    auto& total = totals_[row][labels];
    if (std::isfinite(now) && now > before) {
        total += now - before;
        before = now;
    }
}

std::vector<MetricSample> JobMetrics::read(std::size_t number) const {
    const auto& row = rows_.runs[number];
    const Scope scope = scope_of(row);
    if (scope == Scope::of_all_runs) {
        return samples_of(totals_[number]);
    }
    std::vector<MetricSample> samples;
    for (const auto& [job_id, counted] : runs_) {
        auto of_job =
            scope == Scope::gauge_of_a_job ? row.read(counted.run).take() : samples_of(of_all_runs(counted, number));
        for (auto& sample : of_job) {
            add_job(row, job_id, sample.labels);
            samples.push_back(std::move(sample));
        }
    }
    return samples;
}

/// One row of a job, from its earlier runs and the newest. Either may lack it.
Samples JobMetrics::of_all_runs(const CountedRun& counted, std::size_t row) {
    Samples sums = row < counted.earlier.size() ? counted.earlier[row] : Samples();
    if (row < counted.newest.size()) {
        for (const auto& [labels, value] : counted.newest[row]) {
            add(sums, labels, value);
        }
    }
    return sums;
}

void JobMetrics::add_job(const MetricRow<JobRun>& row, const std::string& job_id, LabelValues& labels) {
    const auto place = std::find(row.labels.begin(), row.labels.end(), "job_id") - row.labels.begin();
    labels.insert(labels.begin() + std::min<std::ptrdiff_t>(place, std::ssize(labels)), job_id);
}

void JobMetrics::drop_old_runs() {
    const auto now = steady_clock::now();
    std::erase_if(runs_,
                  [&](const auto& entry) { return entry.second.ended && now - *entry.second.ended >= gauge_grace_; });
}

void count_event(JobMetrics& metrics, const std::string& job_id, std::uint32_t sequence_length,
                 const WorkerEvent& event) {
    if (const auto* started = std::get_if<StartedEvent>(&event)) {
        metrics.run_details(job_id, started->first_step, std::uint64_t{started->batch_size} * sequence_length,
                            started->replicas, started->ranks);
    } else if (const auto* progress = std::get_if<ProgressEvent>(&event)) {
        metrics.progress(job_id, *progress);
    } else if (const auto* evaluation = std::get_if<EvaluationEvent>(&event)) {
        metrics.evaluated(job_id, *evaluation);
    } else if (const auto* figures = std::get_if<FiguresEvent>(&event)) {
        metrics.judged(job_id, *figures);
    } else if (const auto* checkpoint = std::get_if<CheckpointEvent>(&event)) {
        metrics.checkpoint_written(job_id, *checkpoint);
    }
}

}  // namespace distilld
