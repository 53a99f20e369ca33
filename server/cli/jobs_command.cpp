#include <sys/ioctl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>

#include "api/job_types.hpp"
#include "base/json_text.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/job_watch.hpp"
#include "server/cli/progress_display.hpp"
#include "server/cli/rest_client.hpp"

namespace distilld::cli {
namespace {

namespace json = boost::json;

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

void print_error(const std::string& message) {
    std::fprintf(stderr, "distilld jobs: %s\n", message.c_str());
}

int exit_code_of(const Error& error) {
    return error.kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
}

/// A problem with the spec is the user's to mend: 2, anything else 1.
int exit_code_of(const RestResponse& response, bool submitting) {
    return submitting && response.status == 400 ? kWrongUsage : kFailed;
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

std::string padded(std::string text, std::size_t width) {
    if (text.size() < width) {
        text.resize(width, ' ');
    }
    return text + "  ";
}

std::string job_text(const api::Job& job) {
    std::string text;
    const auto add = [&text](const char* name, const std::string& value) {
        if (!value.empty()) {
            text += padded(name, 12) + value + "\n";
        }
    };
    add("id", job.id);
    add("name", job.name);
    add("state", std::string(api::to_string(job.state)) +
                     (job.cancel_requested && !api::is_terminal(job.state) ? " (cancel requested)" : ""));
    if (job.status_reason) {
        add("reason", job.status_reason->code + ": " + job.status_reason->message);
        add("waits since", job.status_reason->since);
    }
    if (job.queue_position) {
        add("queue", std::to_string(*job.queue_position));
    }
    add("created", job.created_at);
    add("started", job.started_at);
    add("finished", job.finished_at);
    if (job.progress) {
        add("progress", progress_line(*job.progress));
    }
    if (job.progress) {
        add("bottleneck", job.progress->bottleneck);
    }
    if (job.eval_loss) {
        add("eval loss", std::to_string(*job.eval_loss));
    }
    if (job.exported_eval_loss) {
        add("as exported", std::to_string(*job.exported_eval_loss));
    }
    if (!job.checkpoints.empty()) {
        add("checkpoint", job.checkpoints.back().folder);
    }
    add("output", job.output);
    add("sha256", job.weights_sha256);
    return text;
}

/// "  (waits since … : teacher_unavailable)"
std::string wait_text(const api::Job& job) {
    const auto& reason = job.status_reason;
    return reason && !reason->since.empty() ? "  (waits since " + reason->since + ": " + reason->code + ")" : "";
}

/// Prints the job of a successful answer, or the problem.
int print_job(const JobsCommand& command, const Result<RestResponse>& response, bool submitting) {
    if (!response) {
        print_error(response.error().message);
        return exit_code_of(response.error());
    }
    if (response->status >= 300) {
        print_error(describe_problem(*response));
        return exit_code_of(*response, submitting);
    }
    if (command.json) {
        print(response->body + "\n");
        return kDone;
    }
    const auto job = parse_job(*response);
    if (!job) {
        print_error(job.error().message);
        return kFailed;
    }
    print(submitting ? job->id + "\n" : job_text(*job));
    return kDone;
}

int submit(const JobsCommand& command, RestClient& client) {
    const auto text = read_spec_text(command.subject);
    if (!text) {
        print_error(text.error().message);
        return exit_code_of(text.error());
    }
    return print_job(command, client.request("POST", "/v1/jobs", *text), true);
}

int list(const JobsCommand& command, RestClient& client) {
    const auto response = client.request("GET", "/v1/jobs?limit=" + std::to_string(command.limit));
    if (!response || response->status != 200 || command.json) {
        if (response && response->status == 200) {
            print(response->body + "\n");
            return kDone;
        }
        print_error(response ? describe_problem(*response) : response.error().message);
        return kFailed;
    }
    const auto value = parse_body(*response);
    const json::object* object = value ? value->if_object() : nullptr;
    const json::value* data = object == nullptr ? nullptr : object->if_contains("data");
    if (data == nullptr || !data->is_array()) {
        print_error("the service's answer is no list of jobs");
        return kFailed;
    }
    std::string text = padded("ID", 28) + padded("STATE", 10) + padded("STEP", 15) + padded("LOSS", 8) + "NAME\n";
    for (const auto& element : data->get_array()) {
        const auto job = api::job_from_json(element);
        if (!job) {
            print_error(job.error().message);
            return kFailed;
        }
        std::string step = "-";
        std::string loss = "-";
        if (job->progress) {
            step = std::to_string(job->progress->step) + "/" + std::to_string(job->progress->total_steps);
            loss = std::to_string(job->progress->loss);
            loss.resize(std::min<std::size_t>(loss.size(), 8));
        }
        text += padded(job->id, 28) + padded(api::to_string(job->state), 10) + padded(step, 15) + padded(loss, 8) +
                job->name + wait_text(*job) + "\n";
    }
    print(text);
    return kDone;
}

unsigned terminal_width() {
    winsize size{};
    return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : 80;
}

int watch(const JobsCommand& command, RestClient& client) {
    WatchTools tools;
    tools.print = print;
    tools.complain = print_error;
    tools.terminal = !command.json && ::isatty(STDOUT_FILENO) != 0;
    tools.width = terminal_width();
    const auto ended = watch_job(client, command.subject, command.json, tools);
    if (!ended) {
        return kFailed;
    }
    if (!command.json) {
        print(job_text(*ended));
    }
    return ended->state == api::JobState::succeeded ? kDone : kFailed;
}

}  // namespace

int jobs(const JobsCommand& command) {
    const auto client = make_rest_client(command.server);
    if (!client) {
        print_error(client.error().message);
        return kWrongUsage;
    }
    const std::string target = "/v1/jobs/" + path_segment(command.subject);
    switch (command.action) {
        case JobsCommand::Action::submit:
            return submit(command, **client);
        case JobsCommand::Action::list:
            return list(command, **client);
        case JobsCommand::Action::get:
            return print_job(command, (*client)->request("GET", target), false);
        case JobsCommand::Action::watch:
            return watch(command, **client);
        case JobsCommand::Action::cancel:
            return print_job(command, (*client)->request("POST", target + "/cancel"), false);
    }
    return kWrongUsage;
}

int healthcheck(const HealthcheckCommand& command) {
    const auto client = make_rest_client(command.server);
    if (!client) {
        std::fprintf(stderr, "distilld healthcheck: %s\n", client.error().message.c_str());
        return kWrongUsage;
    }
    const auto response = (*client)->request("GET", "/readyz");
    if (response && response->status == 200) {
        print("ready\n");
        return kDone;
    }
    const std::string why = response ? describe_problem(*response) : response.error().message;
    std::fprintf(stderr, "distilld healthcheck: %s\n", why.c_str());
    return kFailed;
}

}  // namespace distilld::cli
