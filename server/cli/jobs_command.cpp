#include <sys/ioctl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <thread>

#include "api/job_types.hpp"
#include "base/json_text.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/progress_display.hpp"
#include "server/cli/rest_client.hpp"
#include "server/cli/sse_parser.hpp"

namespace distilld::cli {
namespace {

namespace json = boost::json;

/// The service sends a comment at least every 15 s.
constexpr std::chrono::seconds kSilence{60};
constexpr std::chrono::seconds kReconnectPause{1};
/// How long the service may be away before watch gives up.
constexpr std::chrono::seconds kAway{120};

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
                job->name + "\n";
    }
    print(text);
    return kDone;
}

/// Follows a job's events over as many connections as it takes.
class Watch {
  public:
    Watch(const JobsCommand& command, RestClient& client)
        : command_(command),
          client_(client),
          display_(print, !command.json && ::isatty(STDOUT_FILENO) != 0, width()),
          target_("/v1/jobs/" + path_segment(command.subject)) {}

    int run() {
        auto alive = std::chrono::steady_clock::now();
        bool first = true;
        while (!ending_) {
            SseParser parser([this](const SseEvent& event) { take(event); });
            bool heard = false;
            const RestClient::OnPiece on_piece = [&](std::string_view bytes) {
                heard = true;
                parser.feed(bytes);
                return !ending_.has_value();
            };
            RestClient::Headers headers{{"Accept", "text/event-stream"}};
            if (!last_id_.empty()) {
                headers.emplace_back("Last-Event-ID", last_id_);
            }
            const auto response = client_.stream(target_ + "/events", headers, on_piece, kSilence);
            if (ending_) {
                break;
            }
            if (response && response->status != 200 && (response->status < 500 || first)) {
                display_.finish();
                print_error(describe_problem(*response));
                return kFailed;
            }
            const auto now = std::chrono::steady_clock::now();
            if (heard) {
                alive = now;
            }
            if (!response && ((first && !heard) || now - alive > kAway)) {
                display_.finish();
                print_error(response.error().message);
                return kFailed;
            }
            first = false;
            std::this_thread::sleep_for(kReconnectPause);
        }
        display_.finish();
        if (!command_.json) {
            print(job_text(*ending_));
        }
        return ending_->state == api::JobState::succeeded ? kDone : kFailed;
    }

  private:
    static unsigned width() {
        winsize size{};
        return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : 80;
    }

    void take(const SseEvent& event) {
        boost::system::error_code ec;
        const json::value data = json::parse(event.data, ec);
        if (ec) {
            return;
        }
        if (event.type == "done") {
            auto job = api::job_from_json(data);
            if (job && api::is_terminal(job->state)) {
                ending_ = std::move(*job);
            }
            return;
        }
        if (!event.id.empty()) {
            last_id_ = event.id;
        }
        if (command_.json) {
            print(to_text(data) + "\n");
            return;
        }
        if (event.type == "gap") {
            return;
        }
        const auto one = api::job_event_from_json(data);
        if (!one) {
            return;
        }
        if (one->type == api::EventType::metrics) {
            const auto progress = api::progress_from_json(json::value(one->data));
            if (progress) {
                display_.show(WorkerEvent(*progress), std::chrono::steady_clock::now());
            }
            return;
        }
        display_.line(one->created_at + " " + one->level + " " + one->message);
    }

    const JobsCommand& command_;
    RestClient& client_;
    ProgressDisplay display_;
    std::string target_;
    std::string last_id_;
    std::optional<api::Job> ending_;
};

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
            return Watch(command, **client).run();
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
