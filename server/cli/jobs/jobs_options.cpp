#include "server/cli/jobs/jobs_options.hpp"

#include <CLI/CLI.hpp>
#include <vector>

#include "api/job_types.hpp"
#include "server/cli/command_options.hpp"

namespace distilld::cli {
namespace {

using Action = JobsCommand::Action;

void add_priority_option(CLI::App& app, JobsCommand& command, const char* help) {
    app.add_option("--priority", command.priority, help)
        ->check(CLI::Range(api::kLowestPriority, api::kHighestPriority));
}

void add_metadata_option(CLI::App& app, JobsCommand& command, const char* help) {
    app.add_option("--metadata", command.metadata, help)
        ->type_name("NAME=TEXT")
        ->allow_extra_args(false)
        ->check([](const std::string& pair) {
            const auto name = pair.find('=');
            return name == 0 || name == std::string::npos ? "NAME=TEXT is expected, not '" + pair + "'" : std::string();
        });
}

void add_list_options(CLI::App& list, JobsCommand& command) {
    list.add_option("--limit", command.limit, "jobs to list")->check(CLI::Range(1, 100))->capture_default_str();
    std::vector<std::string> states;
    for (const auto& row : kEnumNames<api::JobState>) {
        states.emplace_back(row.text);
    }
    list.add_option("--state", command.state, "only jobs in this state")->check(CLI::IsMember(states));
    list.add_option("--name", command.name, "only jobs with this name");
    add_metadata_option(list, command, "only jobs with this metadata; may be repeated: all of them");
}

void add_set_options(CLI::App& set, JobsCommand& command) {
    add_priority_option(set, command, "jobs of higher priority run first");
    set.add_option("--max-concurrent", command.max_concurrent, "requests to the teacher in flight, from now on")
        ->check(CLI::Range(1, 1024));
    add_metadata_option(set, command, "text to keep with the job, NAME= to remove it; may be repeated");
}

void add_metrics_options(CLI::App& metrics, JobsCommand& command) {
    metrics.add_option("--names", command.names, "names of metrics, such as loss,eval_loss; default: all");
    metrics
        .add_option_function<std::uint64_t>(
            "--after-step",
            [&command](std::uint64_t step) {
                command.after_step = step;
                command.from_step = true;
            },
            "only what was measured after this step")
        ->type_name("STEP");
    metrics.add_option("--max-points", command.max_points, "points per metric, thinned so that peaks stay")
        ->check(CLI::Range(2, 10000))
        ->capture_default_str();
}

void add_download_options(CLI::App& download, JobsCommand& command) {
    auto* to =
        download.add_option("--to", command.to, "folder to unpack into, which must be empty; default: the job's id")
            ->type_name("DIR");
    download.add_option("--tar", command.tar, "write the tar there instead of unpacking it; - = stdout")
        ->type_name("FILE")
        ->excludes(to);
}

}  // namespace

void add_connection_options(CLI::App& command, ConnectionOptions& options) {
    command.add_option("--server", options.server, "URL of the service (else DISTILLD_SERVER)")
        ->type_name("URL")
        ->default_str(kDefaultServer);
    command
        .add_option(
            "--api-key-file", options.api_key_file,
            "file with the key of the service (else DISTILLD_API_KEY_FILE, or DISTILLD_API_KEY is the key itself)")
        ->type_name("FILE");
    command
        .add_option("--ca", options.ca,
                    "PEM file with authorities to trust in addition to the system's, for https (else DISTILLD_CA)")
        ->type_name("FILE");
    auto* certificate =
        command
            .add_option(
                "--certificate", options.certificate,
                "PEM file with a client certificate, for a service that asks for one (else DISTILLD_CERTIFICATE)")
            ->type_name("FILE");
    command
        .add_option("--certificate-key", options.certificate_key,
                    "PEM file with its key (else DISTILLD_CERTIFICATE_KEY)")
        ->type_name("FILE")
        ->needs(certificate);
}

void add_nodes_options(CLI::App& nodes, ConnectionOptions& connection, bool& json) {
    add_connection_options(nodes, connection);
    nodes
        .add_option_function<std::string>(
            "-o,--output", [&json](const std::string& form) { json = form == "json"; }, "output format")
        ->type_name("FORM")
        ->check(CLI::IsMember({"table", "json"}));
}

void add_jobs_options(CLI::App& jobs, JobsCommand& command, std::span<const JobVerb> verbs) {
    jobs.require_subcommand(1);
    const auto add = [&](const char* name, const char* description, Action action) {
        CLI::App* one = add_command(jobs, name, description);
        one->callback([&command, action] { command.action = action; });
        if (action == Action::submit) {
            one->add_option("SPEC", command.subject, "job spec, a JSON file; - = stdin")->type_name("FILE")->required();
        } else if (action != Action::list) {
            one->add_option("JOB", command.subject, "id of the job, a unique prefix of it, or the job's name")
                ->type_name("TEXT")
                ->required();
        }
        add_connection_options(*one, command.connection);
        one->add_option_function<std::string>(
               "-o,--output",
               [&command](const std::string& form) {
                   command.json = form == "json";
                   command.wide = form == "wide";
               },
               "output format; wide: more columns (list), text: the same as table")
            ->type_name("FORM")
            ->check(CLI::IsMember({"table", "wide", "json", "text"}));
        return one;
    };
    CLI::App* submit = add("submit", "Submit a job", Action::submit);
    add_priority_option(*submit, command, "jobs of higher priority run first; default: 0");
    submit->add_flag("--dry-run", command.dry_run,
                     "queue nothing: check the spec, and estimate steps, memory and time");
    add_list_options(*add("list", "List jobs, newest first", Action::list), command);
    add("get", "Show a job", Action::get);
    add("watch", "Follow a job until it ends; exit code 0 only when it succeeded", Action::watch);
    for (const JobVerb& verb : verbs) {
        CLI::App* one = add(verb.name, verb.help, Action::ask);
        one->callback([&command, &verb] {
            command.action = Action::ask;
            command.verb = &verb;
        });
        if (verb.option != nullptr) {
            one->add_flag("!" + std::string(verb.option_off), command.verb_option, verb.option_help);
        }
    }
    add_set_options(*add("set", "Change priority, max_concurrent or metadata of a job", Action::set), command);
    add("delete", "Remove a job that has ended, with its history; its files stay", Action::remove);
    add("checkpoints", "List the checkpoints that a job has written", Action::checkpoints);
    add_metrics_options(*add("metrics", "Show the metrics of a job; with -o json all points", Action::metrics),
                        command);
    CLI::App* logs = add("logs", "Print the log of a job's workers", Action::logs);
    logs->add_option("--tail", command.tail, "how many of the last lines to print")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    logs->add_flag("-f,--follow", command.follow, "keep printing until the job has ended");
    add_download_options(*add("download", "Download the output of a job that has succeeded", Action::download),
                         command);
}

}  // namespace distilld::cli
