#include "server/jobs/submission.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "api/spec_paths.hpp"
#include "server/jobs/new_job.hpp"

namespace distilld {

api::SpecViolations objections(const JobSpec& spec, const Admission& admit, LookInside look_inside,
                               const std::vector<std::string>& own_paths, const FileRule* rule) {
    if (admit) {
        auto refused = admit(spec);
        std::erase_if(refused.violations, [&](const api::Violation& one) {
            return std::ranges::find(own_paths, one.pointer) != own_paths.end();
        });
        if (!refused.violations.empty()) {
            return refused;
        }
    }
    return check_named_files(spec, look_inside, rule);
}

JudgedSubmission judge_submission(const SubmitRequest& request, const JobManagerOptions& options, const JobTable& table,
                                  JobJournal& journal) {
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
    auto spec = api::parse_job_spec(request.spec_json);
    if (spec) {
        api::make_paths_absolute(*spec, options.working_directory);
        submission.output = folder_identity(spec->output);
    }
    outcome.kind = table.judge(submission);
    switch (outcome.kind) {
        case SubmitVerdict::stopping:
        case SubmitVerdict::key_reused:
        case SubmitVerdict::queue_full:
            return judged;
        case SubmitVerdict::existing:
            outcome.job = std::move(earlier->job);
            return judged;
        case SubmitVerdict::invalid:
            outcome.violations = spec.error();
            return judged;
        case SubmitVerdict::conflict:
            outcome.violations = output_conflict(*table.output_user(*submission.output), *submission.output);
            return judged;
        case SubmitVerdict::valid:
        case SubmitVerdict::created:
            break;
    }
    const std::optional<FileRule> rule = options.files ? options.files(*spec) : std::nullopt;
    outcome.violations = objections(*spec, options.admit, submission.dry_run ? LookInside::yes : LookInside::no,
                                    request.own_paths, rule ? &*rule : nullptr);
    if (!outcome.violations.violations.empty()) {
        outcome.kind = SubmitVerdict::invalid;
        return judged;
    }
    judged.job = new_job(request, *spec);
    if (submission.dry_run) {
        outcome.job = std::move(judged.job.job);
        return judged;
    }
    judged.job.job.id = request.id.empty() ? make_job_id() : request.id;
    judged.output = *submission.output;
    return judged;
}

}  // namespace distilld
