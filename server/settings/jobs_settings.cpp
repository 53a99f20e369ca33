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
             .help = "folder of the job store, made when it is missing",
             .flag = "--data-dir",
             .required = "the folder of the job store"},
            {.name = "slots",
             .kind = api::make_integer(&JobsSettings::slots, {0, 1024}),
             .help = "jobs that run at once, each on cores of its own; 0 = one, or by devices one a GPU",
             .flag = "--slots"},
            {.name = "slots_by",
             .kind = api::make_choice(&JobsSettings::slots_by, kSlotsByNames),
             .help = "what a slot has for itself: its cores, a GPU beside these (devices), or nothing (none)",
             .flag = "--slots-by"},
            {.name = "worker_nice",
             .kind = api::make_integer(&JobsSettings::worker_nice, {0, 19}),
             .help = "how much nicer workers are than the service, so that a training on all cores does not keep "
                     "requests waiting for one; 0 = not at all",
             .flag = "--worker-nice"},
            {.name = "max_worker_restarts",
             .kind = api::make_integer(&JobsSettings::max_worker_restarts, {0, 1000}),
             .help = "restarts of a job's worker that dies, in a row without progress, before the job fails",
             .flag = "--max-worker-restarts"},
            {.name = "max_oom_restarts",
             .kind = api::make_integer(&JobsSettings::max_oom_restarts, {0, 16}),
             .help = "restarts of a job whose worker runs out of memory, each with half the micro-batch, before the "
                     "job fails",
             .flag = "--max-oom-restarts"},
            {.name = "max_queued",
             .kind = api::make_integer(&JobsSettings::max_queued, {1, 1'000'000}),
             .help = "jobs that may wait for a slot; further ones are refused with 429",
             .flag = "--max-queued"},
            {.name = "cancel_grace",
             .kind = api::make_duration(&JobsSettings::cancel_grace, seconds(1), hours(24)),
             .help = "for a worker that was told to stop to write its checkpoint; then it is killed",
             .flag = "--cancel-grace"},
            {.name = "store_retry",
             .kind = api::make_duration(&JobsSettings::store_retry, milliseconds(10), hours(1)),
             .help = "between tries to write to a job store that could not be written (a full disk)",
             .flag = "--store-retry"},
            {.name = "metrics_interval",
             .kind = api::make_duration(&JobsSettings::metrics_interval, milliseconds(10), hours(1)),
             .help = "the shortest time between two stored metrics events of a job",
             .flag = "--metrics-interval"},
            {.name = "metrics_kept",
             .kind = api::make_integer(&JobsSettings::metrics_kept, {100, 10'000'000}),
             .help = "stored metrics events of a job, about; older ones go",
             .flag = "--metrics-kept"},
            {.name = "idempotency_hours",
             .kind = api::make_integer(&JobsSettings::idempotency_lifetime, {1, 8760}),
             .help = "hours for which an Idempotency-Key is remembered",
             .flag = "--idempotency-hours"},
        }};
}

}  // namespace distilld
