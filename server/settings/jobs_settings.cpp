#include "server/settings/settings_table.hpp"

namespace distilld {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

SettingsSection jobs_section() {
    return {
        .name = "jobs",
        .help = "the job store, the queue and the workers",
        .settings = {
            {.name = "data_dir",
             .kind = api::make_path(&JobsSettings::data_dir, api::PathUse::reads, "folder", true),
             .help = "folder of the job store; it is created if it is missing",
             .required = "the folder of the job store"},
            {.name = "slots",
             .kind = api::make_integer(&JobsSettings::slots, {0, 1024}),
             .help = "jobs that run at once, each on its own cores; 0 = one, or with devices one per GPU"},
            {.name = "slots_by",
             .kind = api::make_choice(&JobsSettings::slots_by, kSlotsByNames),
             .help = "what each slot has for itself: cores, cores and a GPU (devices), or nothing (none)"},
            {.name = "worker_nice",
             .kind = api::make_integer(&JobsSettings::worker_nice, {0, 19}),
             .help = "nice value that is added for workers, so that training on all cores does not delay requests; 0 = "
                     "none"},
            {.name = "max_worker_restarts",
             .kind = api::make_integer(&JobsSettings::max_worker_restarts, {0, 1000}),
             .help = "how often in a row the worker of a job is restarted without progress before the job fails"},
            {.name = "max_oom_restarts",
             .kind = api::make_integer(&JobsSettings::max_oom_restarts, {0, 16}),
             .help = "how often a job that runs out of memory is restarted, each time with half the micro-batch, "
                     "before it fails"},
            {.name = "max_queued",
             .kind = api::make_integer(&JobsSettings::max_queued, {1, 1'000'000}),
             .help = "jobs that may wait for a slot; more are refused with 429"},
            {.name = "cancel_grace",
             .kind = api::make_duration(&JobsSettings::cancel_grace, seconds(1), hours(24)),
             .help = "time for a worker to write its checkpoint when it has to stop; then it is killed"},
            {.name = "store_retry",
             .kind = api::make_duration(&JobsSettings::store_retry, milliseconds(10), hours(1)),
             .help = "time between attempts to write to the job store when that fails (a full disk)"},
            {.name = "metrics_interval",
             .kind = api::make_duration(&JobsSettings::metrics_interval, milliseconds(10), hours(1)),
             .help = "shortest time between two stored metrics events of a job"},
            {.name = "metrics_kept",
             .kind = api::make_integer(&JobsSettings::metrics_kept, {100, 10'000'000}),
             .help = "approximate number of metrics events kept per job; the oldest are dropped"},
            {.name = "idempotency_hours",
             .kind = api::make_integer(&JobsSettings::idempotency_lifetime, {1, 8760}),
             .help = "hours for which an Idempotency-Key is remembered"},
        }};
}

}  // namespace distilld
