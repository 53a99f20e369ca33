#include "server/cli/jobs/job_log.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <thread>

#include "api/job_types.hpp"

namespace distilld::cli {
namespace {

/// Lines to search for to find the end of the last look.
constexpr int kKnownLines = 50;
/// Per look, so that little is missed between two of them.
constexpr std::uint32_t kLinesOfALook = 5000;
constexpr std::chrono::seconds kPause{1};
constexpr int kMaxFailures = 120;

/// The last lines of a text.
std::string_view last_lines(std::string_view text, int count) {
    std::size_t begin = text.size();
    for (int line = 0; line <= count && begin != std::string_view::npos && begin > 0; ++line) {
        const std::size_t end_before = text.rfind('\n', begin - 1);
        if (end_before == std::string_view::npos) {
            return text;
        }
        if (line == count) {
            return text.substr(end_before + 1);
        }
        begin = end_before;
    }
    return text;
}

/// Answers of 5xx are as temporary as the service's absence.
Result<RestResponse> ask(RestClient& client, const std::string& target, bool& may_pass) {
    Result<RestResponse> answer = client.request("GET", target);
    may_pass = !answer || answer->status >= 500;
    if (answer && answer->status != 200) {
        return io_error(describe_problem(*answer));
    }
    return answer;
}

bool has_ended(const RestResponse& response) {
    boost::system::error_code failed;
    const auto body = boost::json::parse(response.body, failed);
    const auto job = failed ? Result<api::Job>(io_error("not JSON")) : api::job_from_json(body);
    return job && api::is_terminal(job->state);
}

}  // namespace

std::string lines_behind(const std::string& before, const std::string& now) {
    const std::string_view known = last_lines(before, kKnownLines);
    const std::size_t at = known.empty() ? std::string::npos : now.find(known);
    return at == std::string::npos ? now : now.substr(at + known.size());
}

Result<void> follow_log(RestClient& client, const std::string& job_id, std::uint32_t tail, const FollowTools& tools) {
    const std::string job = "/v1/jobs/" + path_segment(job_id);
    std::string seen;
    int failures = 0;
    for (bool first = true;;) {
        bool may_pass = false;
        // The state first: then the log has everything up to that state.
        const auto state = ask(client, job, may_pass);
        const std::uint32_t lines = first ? tail : std::max(tail, kLinesOfALook);
        const auto log = state ? ask(client, job + "/logs?tail=" + std::to_string(lines), may_pass) : state;
        if (!log) {
            if (first || !may_pass || failures >= kMaxFailures) {
                return log.error();
            }
            if (failures++ == 0) {
                tools.complain(log.error().message + "; asking again");
            }
        } else {
            failures = 0;
            if (const std::string more = lines_behind(seen, log->body); !more.empty()) {
                tools.print(more);
            }
            seen = log->body.empty() ? seen : log->body;
            first = false;
            if (has_ended(*state)) {
                return {};
            }
        }
        if (tools.sleep) {
            tools.sleep(kPause);
        } else {
            std::this_thread::sleep_for(kPause);
        }
    }
}

}  // namespace distilld::cli
