#include "server/jobs/new_job.hpp"

#include <cstdio>
#include <filesystem>
#include <random>

#include "api/job_spec_json.hpp"

namespace distilld {

StoredJob new_job(const SubmitRequest& request, const JobSpec& spec) {
    StoredJob stored;
    stored.idempotency_key = request.idempotency_key;
    stored.job.kind = spec.kind;
    if (request.owner) {
        stored.job.owner = request.owner->name;
        stored.job.owner_id = request.owner->id;
    }
    stored.job.metadata = request.metadata;
    stored.job.priority = request.priority;
    stored.job.name = spec.name;
    stored.job.created_at = now_text();
    stored.job.output = spec.output;
    stored.job.spec_json = request.spec_json;
    stored.job.resolved_spec_json = api::to_json(spec);
    stored.job.asked_json = request.asked_json;
    return stored;
}

RestoredJob restored_job(const StoredJob& stored) {
    const auto& job = stored.job;
    RestoredJob restored{job.id, folder_identity(job.output)};
    const bool pausing = job.state == api::JobState::pausing;
    restored.running = pausing || job.state == api::JobState::running;
    const bool resumed = pausing && job.status_reason && job.status_reason->code == kResumedByUser;
    restored.paused = job.state == api::JobState::paused || (pausing && !resumed);
    restored.cancel_requested = job.cancel_requested;
    restored.resume = stored.resume;
    restored.place = {job.priority, stored.number};
    return restored;
}

std::optional<StoredJob> earlier_job(const SubmitRequest& request, JobJournal& journal, std::chrono::hours lifetime) {
    if (request.idempotency_key.empty() || request.dry_run) {
        return std::nullopt;
    }
    const auto oldest = std::chrono::system_clock::now() - lifetime;
    return journal.find_by_key(request.idempotency_key, api::rfc3339(oldest));
}

api::SpecViolations output_conflict(const std::string& job_id, const std::string& folder) {
    api::SpecViolations violations;
    violations.violations.push_back(
        {"/output", "conflict", "job " + job_id + ", which has not ended, writes to the same folder " + folder});
    return violations;
}

std::string make_job_id() {
    std::random_device device;
    std::string id = "job-";
    for (int word = 0; word < 3; ++word) {
        char text[9];
        std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(device()));
        id += text;
    }
    return id;
}

std::string folder_identity(const std::string& folder) {
    std::error_code ec;
    const auto canonical = std::filesystem::weakly_canonical(folder, ec);
    return ec ? folder : canonical.string();
}

}  // namespace distilld
