#include "server/cli/jobs/job_find.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <vector>

#include "api/job_types.hpp"
#include "api/kinds/text_checks.hpp"

namespace distilld::cli {
namespace {

namespace json = boost::json;

/// "job-" and 24 digits: such an id is used without a look-up.
constexpr std::size_t kIdLength = 28;

using Jobs = std::vector<api::Job>;

/// The jobs of an answer; none for a refusal, since the actual request will be refused too.
Jobs jobs_of(const RestResponse& response) {
    Jobs jobs;
    boost::system::error_code failed;
    const json::value body = json::parse(response.body, failed);
    const auto* object = response.status == 200 && !failed ? body.if_object() : nullptr;
    const auto* data = object != nullptr ? object->if_contains("data") : nullptr;
    if (data == nullptr || !data->is_array()) {
        return jobs;
    }
    for (const json::value& one : data->get_array()) {
        if (auto job = api::job_from_json(one)) {
            jobs.push_back(*std::move(job));
        }
    }
    return jobs;
}

}  // namespace

Result<std::string> find_job(RestClient& client, const std::string& said) {
    if (said.empty() || (said.starts_with("job-") && said.size() == kIdLength)) {
        return said;
    }
    Jobs meant;
    for (const char* filter : {"id_prefix=", "name="}) {
        const auto answer = client.request("GET", "/v1/jobs?limit=100&" + (filter + path_segment(said)));
        if (!answer) {
            return answer.error();
        }
        for (api::Job& job : jobs_of(*answer)) {
            if (std::ranges::find(meant, job.id, &api::Job::id) == meant.end()) {
                meant.push_back(std::move(job));
            }
        }
    }
    if (std::ranges::find(meant, said, &api::Job::id) != meant.end() || meant.empty()) {
        return said;
    }
    const auto goes_on = [](const api::Job& job) { return !api::is_terminal(job.state); };
    const auto alive = std::ranges::count_if(meant, goes_on);
    const bool is_name = std::ranges::all_of(meant, [&](const api::Job& job) { return job.name == said; });
    if (meant.size() == 1 || (is_name && alive == 1)) {
        return meant.size() == 1 ? meant.front().id : std::ranges::find_if(meant, goes_on)->id;
    }
    return invalid_input("'" + said + "' matches " + std::to_string(meant.size()) + " jobs, and " +
                         (alive == 0 ? "all of them have ended" : std::to_string(alive) + " of them have not ended") +
                         ": give the id of one\n" + api::text_of_first(meant, "\n", [](const api::Job& job) {
                             return job.id + "  " + api::to_string(job.state) + "  " + job.created_at + "  " + job.name;
                         }));
}

}  // namespace distilld::cli
