#include "server/jobs/job_requests.hpp"

#include "api/problem.hpp"
#include "server/jobs/api_route.hpp"
#include "server/jobs/job_access.hpp"
#include "server/jobs/query_reader.hpp"

namespace distilld {
namespace {

constexpr std::size_t kKeyLimit = 255;
constexpr std::string_view kMetadataFilter = "metadata[";
constexpr const char* kQueueRetrySeconds = "30";

api::Response queue_full(const api::Request& request) {
    api::Problem problem;
    problem.status = 429;
    problem.code = "queue_full";
    problem.detail = "as many jobs wait as the service takes (--max-queued); submit it again when some have begun";
    problem.instance = request.path;
    return api::to_response(problem, {{"Retry-After", kQueueRetrySeconds}});
}

}  // namespace

std::string idempotency_key_of(const api::Request& request) {
    auto header = request.header("idempotency-key");
    if (!header) {
        header = request.header("x-idempotency-key");
    }
    if (!header) {
        return {};
    }
    if (header->empty() || header->size() > kKeyLimit) {
        refuse(request, 400, "invalid_parameter", "Idempotency-Key must have 1 to 255 bytes", "idempotency-key");
    }
    return scoped_idempotency_key(std::string(*header), request);
}

std::map<std::string, std::string> metadata_filter_of(const api::Request& request, QueryReader& asked) {
    std::map<std::string, std::string> wanted;
    for (const auto& [name, text] : request.query) {
        const bool whole = name.starts_with(kMetadataFilter) && name.ends_with(']');
        if (!whole) {
            continue;
        }
        const auto key = name.substr(kMetadataFilter.size(), name.size() - kMetadataFilter.size() - 1);
        if (key.empty() || key.size() > kMetadataNameBytes || text.size() > kMetadataTextBytes) {
            asked.wrong(name, name + ": a name has 1 to " + std::to_string(kMetadataNameBytes) +
                                  " bytes and a text at most " + std::to_string(kMetadataTextBytes));
        }
        wanted[key] = text;
    }
    if (wanted.size() > kMetadataPairs) {
        asked.wrong("metadata", "metadata: at most " + std::to_string(kMetadataPairs) + " pairs can be asked for");
    }
    return wanted;
}

api::Response refused_submission(const api::Request& request, const SubmitOutcome& outcome) {
    switch (outcome.kind) {
        case SubmitOutcome::Kind::invalid: {
            auto problem = api::spec_problem(outcome.violations, request.path);
            const auto& first = outcome.violations.violations.front().code;
            if (first == "path_not_allowed" || first == "host_not_allowed") {
                problem.code = first;
            }
            return api::to_response(problem);
        }
        case SubmitOutcome::Kind::conflict: {
            auto problem = api::spec_problem(outcome.violations, request.path);
            problem.status = 409;
            problem.title.clear();
            problem.code = "output_in_use";
            return api::to_response(problem);
        }
        case SubmitOutcome::Kind::key_reused:
            refuse(request, 422, "idempotency_key_reused", "the Idempotency-Key was used with another body",
                   "idempotency-key");
        case SubmitOutcome::Kind::queue_full:
            return queue_full(request);
        case SubmitOutcome::Kind::created:
        case SubmitOutcome::Kind::existing:
        case SubmitOutcome::Kind::valid:
        case SubmitOutcome::Kind::not_yours:  // invalid by now
        case SubmitOutcome::Kind::stopping:
            break;
    }
    return unavailable(request.path, "stopping", "the service is stopping and takes no jobs");
}

}  // namespace distilld
