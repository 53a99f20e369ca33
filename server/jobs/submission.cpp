#include "server/jobs/submission.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "api/spec_paths.hpp"
#include "server/jobs/new_job.hpp"
#include "server/jobs/spec_claims.hpp"

namespace distilld {

PreparedSpec prepare_spec(const std::string& spec_json, const JobManagerOptions& options, const Admission& admit,
                          LookInside look_inside, const std::vector<std::string>& own_paths) {
    PreparedSpec prepared;
    auto spec = api::parse_job_spec(spec_json);
    if (!spec) {
        prepared.violations = spec.error();
        return prepared;
    }
    api::make_paths_absolute(*spec, options.working_directory);
    if (admit) {
        prepared.violations = admit(*spec);
        std::erase_if(prepared.violations.violations, [&](const api::Violation& one) {
            return std::ranges::find(own_paths, one.pointer) != own_paths.end();
        });
    }
    if (prepared.violations.violations.empty()) {
        prepared.claims = claims_of(*spec);
        const std::optional<FileRule> rule = options.files ? options.files(*spec) : std::nullopt;
        prepared.violations = check_named_files(*spec, look_inside, rule ? &*rule : nullptr);
    }
    prepared.spec = *std::move(spec);
    return prepared;
}

PreparedSpec prepare_submission(const SubmitRequest& request, const JobManagerOptions& options) {
    return prepare_spec(request.spec_json, options, options.admit, request.dry_run ? LookInside::yes : LookInside::no,
                        request.own_paths);
}

JudgedSubmission judge_submission(const SubmitRequest& request, PreparedSpec prepared, const JobManagerOptions& options,
                                  const JobTable& table, JobJournal& journal) {
    JudgedSubmission judged;
    auto& outcome = judged.outcome;
    JobSubmission submission;
    submission.dry_run = request.dry_run;
    auto earlier = earlier_job(request, journal, options.idempotency_lifetime);
    if (earlier) {
        const auto& job = earlier->job;
        const bool asked = !request.asked_json.empty() || !job.asked_json.empty();
        submission.earlier = {asked ? job.asked_json == request.asked_json : job.spec_json == request.spec_json};
    }
    if (prepared.violations.violations.empty()) {
        const std::string owner = request.owner ? request.owner->id : std::string();
        submission.claims = {std::move(prepared.claims), owner, request.is_admin};
    }
    outcome.kind = table.judge(submission);
    if (outcome.kind == JobVerdict::existing) {
        outcome.job = std::move(earlier->job);
    } else if (outcome.kind == JobVerdict::invalid_spec) {
        outcome.violations = std::move(prepared.violations);
    } else if (outcome.kind == JobVerdict::output_in_use || outcome.kind == JobVerdict::not_yours) {
        outcome.violations = claim_violation(*table.conflict(*submission.claims));
    }
    if (outcome.kind != JobVerdict::created && outcome.kind != JobVerdict::valid) {
        return judged;
    }
    judged.job = new_job(request, *prepared.spec);
    if (submission.dry_run) {
        outcome.job = std::move(judged.job.job);
        return judged;
    }
    judged.job.job.id = request.id.empty() ? make_job_id() : request.id;
    judged.claims = *std::move(submission.claims);
    return judged;
}

}  // namespace distilld
