#include "server/jobs/task_array.hpp"

#include <utility>

#include "api/job_spec_json.hpp"
#include "api/spec_fields.hpp"
#include "base/utf8.hpp"
#include "server/jobs/store/event_records.hpp"

namespace distilld {
namespace {

/// A name of a job may not be longer.
std::string name_of_task(const std::string& name, std::uint32_t task) {
    const std::string ending = " task " + std::to_string(task);
    return std::string(cut_utf8(name, api::kMaxJobName - ending.size())) + ending;
}

}  // namespace

std::vector<NewJob> with_its_tasks(StoredJob first, std::string (*make_id)()) {
    const JobSpec spec = *first.spec;
    std::vector<NewJob> jobs;
    for (std::uint32_t task = 0; task < spec.tasks; ++task) {
        StoredJob stored = first;
        if (spec.tasks > 1) {
            stored.job.task = task;
        }
        if (task > 0) {
            JobSpec own = spec;
            own.name = name_of_task(spec.name, task);
            stored.job.id = make_id();
            stored.job.task_of = first.job.id;
            stored.job.name = own.name;
            stored.job.resolved_spec_json = api::to_json(own);
            stored.idempotency_key.clear();
            stored.spec = std::make_shared<const JobSpec>(std::move(own));
        }
        jobs.push_back({stored, {state_record(stored.job)}});
    }
    return jobs;
}

std::string array_of(const api::Job& job) {
    return job.task == 0U ? job.id : job.task_of;
}

}  // namespace distilld
