#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/job_types.hpp"
#include "base/unix_time.hpp"
#include "pipeline/core/worker_events.hpp"
#include "server/jobs/metrics/job_metric_rows.hpp"

namespace distilld {

struct JobMetricsOptions {
    std::chrono::milliseconds gauge_grace{60000};  ///< how long a job's gauges outlive its run
    std::string version;                           ///< for distilld_build_info
    std::filesystem::path store_file{};            ///< of the job store, for its size and disk; empty = none
    std::function<double()> unix_time = unix_now;  ///< seconds
    std::function<LinkCounts()> links{};           ///< to workers on other machines; empty = there are none. Any thread
};

/// The service's metrics for Prometheus. Any thread.
class JobMetrics {
  public:
    explicit JobMetrics(JobMetricsOptions options = {}, JobMetricRows rows = job_metric_rows());

    /// What the service counts besides its runs. `change` is called with it under the lock.
    template <class Change>
    void update(Change change) {
        const std::lock_guard lock(mutex_);
        change(service_);
    }
    /// One HTTP answer (see http::Observer).
    void http_request(const std::string& method, const std::string& route, unsigned status,
                      std::chrono::nanoseconds duration);

    /// A worker began (or resumed) the job: its counters start at 0 again, ours continue.
    void run_started(const std::string& job_id);
    /// The worker's first report: its first step, the input positions of one micro-batch, how many train at once,
    /// and on how many ranks.
    void run_details(const std::string& job_id, std::uint64_t first_step, std::uint64_t micro_batch_tokens,
                     std::uint32_t replicas = 0, std::uint32_t ranks = 0);
    void progress(const std::string& job_id, const ProgressEvent& progress);
    void evaluated(const std::string& job_id, const EvaluationEvent& evaluation);
    void judged(const std::string& job_id, const FiguresEvent& figures);
    void checkpoint_written(const std::string& job_id, const CheckpointEvent& checkpoint);
    /// The run ended. The job's gauges stay for the grace period, so that the last value is scraped.
    void run_ended(const std::string& job_id);

    /// The text exposition format 0.0.4.
    [[nodiscard]] std::string text();

  private:
    using Samples = std::map<LabelValues, std::variant<double, Histogram>>;
    /// A run, and what of its counts is in our counters. Each list is indexed by row.
    struct CountedRun {
        JobRun run;
        std::vector<std::map<LabelValues, double>> counted;  ///< of counters over all runs
        std::vector<Samples> earlier;                        ///< of a job's: by its earlier runs
        std::vector<Samples> newest;                         ///< by this run, as last reported
        std::optional<std::chrono::steady_clock::time_point> ended;
    };
    struct StoreFiles {
        std::uint64_t bytes = 0;
        std::optional<std::filesystem::space_info> disk;
    };

    void in_order_of_text();
    [[nodiscard]] StoreFiles store_files() const;
    void take_in(const StoreFiles& files);
    void take_in(CountedRun& counted);
    void count(std::size_t row, const LabelValues& labels, double now, CountedRun& counted);
    [[nodiscard]] std::vector<MetricSample> read(std::size_t number) const;
    static Samples of_all_runs(const CountedRun& counted, std::size_t row);
    static void add_job(const MetricRow<JobRun>& row, const std::string& job_id, LabelValues& labels);
    void drop_old_runs();

    const std::chrono::milliseconds gauge_grace_;
    const std::filesystem::path store_file_;
    const std::function<double()> unix_time_;
    const std::function<LinkCounts()> links_;
    JobMetricRows rows_;  ///< in the order of the text
    std::mutex mutex_;    ///< guards what follows
    ServiceCounts service_;
    std::map<std::string, CountedRun> runs_;             ///< by job
    std::vector<std::map<LabelValues, double>> totals_;  ///< by row: of counters over all runs
};

/// Counts the events of a job's worker while the run lasts. `sequence_length` is the spec's. The last event is not
/// counted here: a service first compares it with earlier events (RunRecorder), and a foreground run has ended.
void count_event(JobMetrics& metrics, const std::string& job_id, std::uint32_t sequence_length,
                 const WorkerEvent& event);

}  // namespace distilld
