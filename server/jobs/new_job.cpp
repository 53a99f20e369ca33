#include "server/jobs/new_job.hpp"

#include <cstdio>
#include <random>

#include "api/job_spec_json.hpp"
#include "server/jobs/spec_claims.hpp"
#include "server/security/path_rule.hpp"

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
    RestoredJob restored{job.id, claims_of_stored(job)};
    restored.begun = !job.started_at.empty();
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

PathClaims claims_of_stored(const api::Job& job) {
    PathClaims claims;
    claims.owner = job.owner_id;
    if (const auto spec = api::parse_job_spec(job.resolved_spec_json)) {
        claims.paths = claims_of(*spec);
    } else if (!job.output.empty()) {
        claims.paths.push_back(
            {resolved_path(job.output).value_or(job.output).string(), api::PathUse::writes, "/output"});
    }
    return claims;
}

api::SpecViolations claim_violation(const ClaimConflict& conflict) {
    const std::string& wanted = conflict.wanted.path;
    const std::string& held = conflict.held.path;
    std::string place = "'" + wanted + "'";
    if (wanted != held) {
        const bool inside = wanted.size() > held.size();
        place += (inside ? " lies in '" : " holds '") + held + "'";
    }
    std::string does = conflict.held.use == api::PathUse::reads ? "reads" : "writes to";
    std::string detail = place + ": job " + conflict.job + " " + does +
                         " it and has not ended; name another place, or wait until that job has ended";
    if (conflict.ended) {
        detail = place + ": job " + conflict.job + " of another key has written it; name another place";
    }
    api::SpecViolations violations;
    violations.violations.push_back(
        {conflict.wanted.pointer, conflict.ended ? "path_not_allowed" : "conflict", std::move(detail)});
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

}  // namespace distilld
