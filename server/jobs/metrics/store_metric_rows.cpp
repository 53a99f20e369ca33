#include "server/jobs/metrics/metric_row_parts.hpp"

namespace distilld {
namespace {

using enum MetricType;

/// Empty for a run without a store.
MetricSamples store_rows(const JobRun& run) {
    const auto& store = run.progress.fetch.store;
    return store ? std::vector<MetricSample>{{{"held"}, store->held_rows},
                                             {{"sealed"}, store->sealed_rows},
                                             {{"wanted"}, store->rows}}
                 : std::vector<MetricSample>();
}

MetricSamples store_bytes(const JobRun& run) {
    const auto& store = run.progress.fetch.store;
    return store ? MetricSamples(store->sealed_bytes) : MetricSamples();
}

std::uint64_t generated_rows(const JobRun& run) {
    return run.progress.generates && run.progress.step > run.first_step ? run.progress.step - run.first_step : 0;
}

}  // namespace

std::vector<MetricRow<JobRun>> store_metric_rows() {
    using Row = MetricRow<JobRun>;
    return {
        Row("distilld_teacher_store_rows",
            "Rows of the dataset in the store of answers of an active job: held, sealed (others can read them), "
            "wanted.",
            gauge, {"job_id", "state"}, store_rows),
        Row("distilld_teacher_store_sealed_bytes",
            "Size of the sealed shards in the store of answers of an active job.", gauge, {"job_id"}, store_bytes),
        Row("distilld_generate_rows_total", "Rows that generate jobs have written into stores.", counter,
            generated_rows),
    };
}

}  // namespace distilld
