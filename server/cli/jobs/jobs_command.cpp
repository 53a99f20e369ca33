#include <boost/json.hpp>
#include <cstdio>
#include <utility>

#include "api/job_types.hpp"
#include "base/json_text.hpp"
#include "base/utf8.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/jobs/connection_options.hpp"
#include "server/cli/jobs/job_download.hpp"
#include "server/cli/jobs/job_find.hpp"
#include "server/cli/jobs/job_log.hpp"
#include "server/cli/jobs/job_tables.hpp"
#include "server/cli/jobs/job_watch.hpp"
#include "server/cli/jobs/rest_client.hpp"

namespace distilld::cli {
namespace {

namespace json = boost::json;

void show(const std::string& text) {
    print(to_shown_utf8(text));
}

void complain(const std::string& message) {
    std::fprintf(stderr, "distilld jobs: %s\n", to_shown_utf8(message).c_str());
}

int exit_code_of(const Error& error) {
    return error.kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
}

/// 2 for a problem with the user's input, else 1.
int exit_code_of(const RestResponse& response, bool hands_over) {
    return hands_over && response.status == 400 ? kWrongUsage : kFailed;
}

Result<json::value> parse_body(const RestResponse& response) {
    boost::system::error_code ec;
    json::value value = json::parse(response.body, ec);
    if (ec) {
        return io_error("the service's answer is not JSON: " + ec.message());
    }
    return value;
}

Result<api::Job> parse_job(const RestResponse& response) {
    const auto value = parse_body(response);
    if (!value) {
        return value.error();
    }
    return api::job_from_json(*value);
}

/// Prints the job of a successful answer, or the problem.
int print_job(const JobsCommand& command, const Result<RestResponse>& response, bool submitting) {
    if (!response) {
        complain(response.error().message);
        return exit_code_of(response.error());
    }
    if (response->status >= 300) {
        complain(describe_problem(*response));
        return exit_code_of(*response, submitting || command.action == JobsCommand::Action::set);
    }
    if (command.json) {
        show(response->body + "\n");
        return kDone;
    }
    const auto job = parse_job(*response);
    if (!job) {
        complain(job.error().message);
        return kFailed;
    }
    show(submitting ? job->id + "\n" : job_text(*job));
    return kDone;
}

/// Splits NAME=TEXT, which the options have checked.
std::pair<std::string, std::string> name_and_text(const std::string& pair) {
    const auto end = pair.find('=');
    return {pair.substr(0, end), pair.substr(end + 1)};
}

/// The body of a PATCH. An empty text removes the pair.
std::string patch_text(const JobsCommand& command) {
    json::object patch;
    if (command.priority) {
        patch["priority"] = *command.priority;
    }
    if (command.max_concurrent) {
        patch["max_concurrent"] = *command.max_concurrent;
    }
    if (!command.metadata.empty()) {
        json::object metadata;
        for (const auto& pair : command.metadata) {
            const auto [name, text] = name_and_text(pair);
            metadata[name] = text.empty() ? json::value(nullptr) : json::value(text);
        }
        patch["metadata"] = std::move(metadata);
    }
    return to_text(patch);
}

int set(const JobsCommand& command, RestClient& client, const std::string& target) {
    if (!command.priority && !command.max_concurrent && command.metadata.empty()) {
        complain("nothing to set: give --priority, --max-concurrent or --metadata");
        return kWrongUsage;
    }
    return print_job(command, client.request("PATCH", target, patch_text(command)), false);
}

/// A successful answer unchanged or through `text_of`; otherwise the problem.
Result<std::string> text_of_answer(bool as_json, const Result<RestResponse>& response,
                                   Result<std::string> (*text_of)(const json::value&)) {
    if (!response || response->status != 200) {
        return response ? io_error(describe_problem(*response)) : response.error();
    }
    if (as_json) {
        return response->body + "\n";
    }
    const auto value = parse_body(*response);
    return value ? text_of(*value) : Result<std::string>(value.error());
}

/// Prints such an answer.
int print_answer(const JobsCommand& command, const Result<RestResponse>& response,
                 Result<std::string> (*text_of)(const json::value&)) {
    const auto text = text_of_answer(command.json, response, text_of);
    if (!text) {
        complain(text.error().message);
        return kFailed;
    }
    show(*text);
    return kDone;
}

int submit(const JobsCommand& command, RestClient& client) {
    const auto text = read_spec_text(command.subject);
    if (!text) {
        complain(text.error().message);
        return exit_code_of(text.error());
    }
    const std::string priority = command.priority ? "priority=" + std::to_string(*command.priority) : std::string();
    if (command.dry_run) {
        const std::string query = "?dry_run=true" + (priority.empty() ? "" : "&" + priority);
        const auto answer = client.request("POST", "/v1/jobs" + query, *text);
        const bool wrong = answer && answer->status == 400;
        const int code = print_answer(command, answer, estimate_text);
        return wrong ? kWrongUsage : code;
    }
    const std::string query = priority.empty() ? "" : "?" + priority;
    return print_job(command, client.request("POST", "/v1/jobs" + query, *text), true);
}

/// Text is printed unchanged; JSON is one string.
int print_log(const JobsCommand& command, const Result<RestResponse>& response) {
    if (!response || response->status != 200) {
        complain(response ? describe_problem(*response) : response.error().message);
        return kFailed;
    }
    show(command.json ? to_text(json::value(response->body)) + "\n" : response->body);
    return kDone;
}

int follow(const JobsCommand& command, RestClient& client) {
    FollowTools tools;
    tools.print = [json = command.json](const std::string& text) {
        show(json ? to_text(json::value(text)) + "\n" : text);
    };
    tools.complain = complain;
    const auto followed = follow_log(client, command.subject, command.tail, tools);
    if (!followed) {
        complain(followed.error().message);
        return kFailed;
    }
    return kDone;
}

int download(const JobsCommand& command, RestClient& client) {
    const auto done = download_artifacts(client, {command.subject, command.to, command.tar});
    if (!done) {
        complain(done.error().message);
        return exit_code_of(done.error());
    }
    if (command.tar == "-") {
        return kDone;  // stdout has the tar
    }
    if (command.json) {
        json::object said{{"place", done->place}, {"bytes", done->bytes}};
        if (command.tar.empty()) {
            said["files"] = done->files;
        }
        show(to_text(said) + "\n");
        return kDone;
    }
    show(done->place + ": " + (command.tar.empty() ? std::to_string(done->files) + " files, " : std::string()) +
         std::to_string(done->bytes) + " bytes\n");
    return kDone;
}

std::string list_target(const JobsCommand& command) {
    std::string target = "/v1/jobs?limit=" + std::to_string(command.limit);
    if (!command.state.empty()) {
        target += "&state=" + command.state;
    }
    if (!command.name.empty()) {
        target += "&name=" + path_segment(command.name);
    }
    for (const auto& pair : command.metadata) {
        const auto [name, text] = name_and_text(pair);
        target += "&metadata%5B" + path_segment(name) + "%5D=" + path_segment(text);
    }
    return target;
}

int ask(const JobsCommand& command, RestClient& client, const std::string& job) {
    const JobVerb& verb = *command.verb;
    const std::string query = command.verb_option ? std::string() : "?" + std::string(verb.option) + "=false";
    return print_job(command, client.request("POST", job + "/" + verb.name + query), false);
}

std::string metrics_target(const JobsCommand& command, const std::string& job) {
    std::string target = job + "/metrics?max_points=" + std::to_string(command.max_points);
    if (!command.names.empty()) {
        target += "&names=" + path_segment(command.names);
    }
    if (command.from_step) {
        target += "&after_step=" + std::to_string(command.after_step);
    }
    return target;
}

int watch(const JobsCommand& command, RestClient& client) {
    WatchTools tools;
    tools.print = print;
    tools.complain = complain;
    if (!command.json) {
        tools.width = terminal_width();
    }
    const auto ended = watch_job(client, command.subject, command.json, tools);
    if (!ended) {
        return kFailed;
    }
    if (!command.json) {
        show(job_text(*ended));
    }
    return ended->state == api::JobState::succeeded ? kDone : kFailed;
}

}  // namespace

int execute(const JobsCommand& given) {
    const auto client = make_client(given.connection);
    if (!client) {
        complain(client.error().message);
        return kWrongUsage;
    }
    JobsCommand command = given;
    if (command.action != JobsCommand::Action::submit && command.action != JobsCommand::Action::list) {
        auto id = find_job(**client, command.subject);
        if (!id) {
            complain(id.error().message);
            return kFailed;
        }
        command.subject = std::move(*id);
    }
    const std::string target = "/v1/jobs/" + path_segment(command.subject);
    switch (command.action) {
        case JobsCommand::Action::submit:
            return submit(command, **client);
        case JobsCommand::Action::list:
            return print_answer(command, (*client)->request("GET", list_target(command)),
                                command.wide ? wide_jobs_table : jobs_table);
        case JobsCommand::Action::get:
            return print_job(command, (*client)->request("GET", target), false);
        case JobsCommand::Action::watch:
            return watch(command, **client);
        case JobsCommand::Action::ask:
            return ask(command, **client, target);
        case JobsCommand::Action::set:
            return set(command, **client, target);
        case JobsCommand::Action::remove:
            return print_answer(command, (*client)->request("DELETE", target), deleted_text);
        case JobsCommand::Action::checkpoints:
            return print_answer(command, (*client)->request("GET", target + "/checkpoints?limit=10000"),
                                checkpoints_table);
        case JobsCommand::Action::logs:
            if (command.follow) {
                return follow(command, **client);
            }
            return print_log(command, (*client)->request("GET", target + "/logs?tail=" + std::to_string(command.tail)));
        case JobsCommand::Action::download:
            return download(command, **client);
        case JobsCommand::Action::metrics:
            return print_answer(command, (*client)->request("GET", metrics_target(command, target)), metrics_table);
    }
    return kWrongUsage;
}

int execute(const NodesCommand& command) {
    const auto client = make_client(command.connection);
    const auto text = client ? text_of_answer(command.json, (*client)->request("GET", "/v1/nodes"), nodes_table)
                             : Result<std::string>(client.error());
    if (!text) {
        std::fprintf(stderr, "distilld nodes: %s\n", to_shown_utf8(text.error().message).c_str());
        return client ? kFailed : kWrongUsage;
    }
    show(*text);
    return kDone;
}

int execute(const HealthcheckCommand& command) {
    const auto client = make_client(command.connection);
    if (!client) {
        std::fprintf(stderr, "distilld healthcheck: %s\n", client.error().message.c_str());
        return kWrongUsage;
    }
    const auto response = (*client)->request("GET", "/readyz");
    if (response && response->status == 200) {
        show("ready\n");
        return kDone;
    }
    const std::string why = response ? describe_problem(*response) : response.error().message;
    std::fprintf(stderr, "distilld healthcheck: %s\n", to_shown_utf8(why).c_str());
    return kFailed;
}

}  // namespace distilld::cli
