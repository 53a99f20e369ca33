#include "server/cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <sstream>

#include "distilld_version.hpp"

namespace distilld::cli {
namespace {

/// The flags of `run` that stand for fields of the spec, as they were given.
struct SpecFlags {
    std::vector<std::string> sets;
    std::vector<std::string> endpoints;
    std::optional<bool> parallel;
    std::optional<std::uint32_t> micro_batches;
    std::string batch_size;
    std::string checkpoint_dir;
    std::optional<double> timeout;
    std::optional<std::uint64_t> max_steps;
    std::string output;
};

const std::string kVersionLine = std::string("distilld ") + kVersion;

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& description) {
    CLI::App* command = parent.add_subcommand(name, description);
    command->set_version_flag("--version", kVersionLine);
    return command;
}

void add_serve(CLI::App& app, ServeCommand& command) {
    CLI::App* serve = add_command(app, "serve", "Serve the REST API and run the submitted jobs");
    serve->add_option("--listen", command.listen, "ADDRESS:PORT; port 0 = any free one")->capture_default_str();
    serve->add_option("--data-dir", command.data_dir, "folder of the job store, made when it is missing")->required();
    serve->add_option("--slots", command.slots, "jobs that run at once")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    serve->add_flag("--log-json", command.log_json, "write log lines as JSON objects");
}

void add_run(CLI::App& app, RunCommand& command, SpecFlags& flags) {
    CLI::App* run = add_command(app, "run", "Run one job in the foreground");
    run->add_option("SPEC", command.spec, "job spec, a JSON file; - = stdin")->required();
    run->add_flag("--resume", command.resume, "go on from the newest checkpoint of the output folder");
    run->add_option("--set", flags.sets, "set a field of the spec: /json/pointer=value")->allow_extra_args(false);
    run->add_option("--trace", command.trace_file, "write a Chrome trace of who ran when");
    run->add_option("--report", command.report_file, "write the figures of the finished run as JSON");
    const char* fields = "Fields of the spec";
    run->add_option("--teacher-endpoint", flags.endpoints, "teacher.endpoints; may be repeated")
        ->allow_extra_args(false)
        ->group(fields);
    run->add_option("--parallel", flags.parallel, "training.parallel: true or false")->group(fields);
    run->add_option("--micro-batches", flags.micro_batches, "training.micro_batches")->group(fields);
    run->add_option("--batch-size", flags.batch_size, "training.batch_size: a number or auto")->group(fields);
    run->add_option("--max-steps", flags.max_steps, "training.max_steps, in place of training.epochs")->group(fields);
    run->add_option("--checkpoint-dir", flags.checkpoint_dir, "checkpoint.dir")->group(fields);
    run->add_option("--timeout", flags.timeout, "teacher.timeout_secs, of one request")->group(fields);
    run->add_option("--output", flags.output, "output folder")->group(fields);
}

void add_teacher(CLI::App& app, TeacherOptions& options) {
    CLI::App* teacher = add_command(app, "teacher", "Serve a model folder as a teacher endpoint");
    add_teacher_options(*teacher, options);
    teacher->get_option("MODEL_DIR")->check(CLI::ExistingDirectory);
}

void add_jobs(CLI::App& app, JobsCommand& command) {
    CLI::App* jobs = add_command(app, "jobs", "Submit, list, watch and cancel jobs of a running service");
    jobs->require_subcommand(1);
    using Action = JobsCommand::Action;
    const auto add = [&](const char* name, const char* description, Action action, const char* subject,
                         const char* subject_help) {
        CLI::App* one = add_command(*jobs, name, description);
        one->callback([&command, action] { command.action = action; });
        if (subject != nullptr) {
            one->add_option(subject, command.subject, subject_help)->required();
        }
        one->add_option("--server", command.server, "URL of the service")->capture_default_str();
        one->add_option_function<std::string>(
               "-o,--output", [&command](const std::string& form) { command.json = form == "json"; }, "text or json")
            ->check(CLI::IsMember({"text", "json"}));
        return one;
    };
    add("submit", "Submit a job", Action::submit, "SPEC", "job spec, a JSON file; - = stdin");
    add("list", "List jobs, newest first", Action::list, nullptr, nullptr)
        ->add_option("--limit", command.limit, "jobs to list")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    add("get", "Show a job", Action::get, "ID", "job id");
    add("watch", "Follow a job until it ends; exit code 0 only when it succeeded", Action::watch, "ID", "job id");
    add("cancel", "Cancel a job; a running one writes a checkpoint first", Action::cancel, "ID", "job id");
}

std::string quoted(const std::string& text) {
    return boost::json::serialize(boost::json::value(text));
}

/// The overrides in order: --set first, so that the flags of their own win.
Result<std::vector<api::Override>> overrides_of(const SpecFlags& flags) {
    std::vector<api::Override> overrides;
    for (const auto& text : flags.sets) {
        auto one = api::parse_override(text);
        if (!one) {
            return one.error();
        }
        overrides.push_back(std::move(*one));
    }
    if (!flags.endpoints.empty()) {
        boost::json::array endpoints;
        for (const auto& endpoint : flags.endpoints) {
            endpoints.emplace_back(endpoint);
        }
        overrides.emplace_back("/teacher/endpoints", boost::json::serialize(endpoints));
    }
    if (flags.parallel) {
        overrides.emplace_back("/training/parallel", *flags.parallel ? "true" : "false");
    }
    if (flags.micro_batches) {
        overrides.emplace_back("/training/micro_batches", std::to_string(*flags.micro_batches));
    }
    if (!flags.batch_size.empty()) {
        overrides.emplace_back("/training/batch_size", flags.batch_size);
    }
    if (flags.max_steps) {
        overrides.emplace_back("/training/max_steps", std::to_string(*flags.max_steps));
        overrides.emplace_back("/training/epochs", "null");
    }
    if (!flags.checkpoint_dir.empty()) {
        overrides.emplace_back("/checkpoint/dir", quoted(flags.checkpoint_dir));
    }
    if (flags.timeout) {
        overrides.emplace_back("/teacher/timeout_secs", boost::json::serialize(boost::json::value(*flags.timeout)));
    }
    if (!flags.output.empty()) {
        overrides.emplace_back("/output", quoted(flags.output));
    }
    return overrides;
}

ParsedLine usage_error(const std::string& message) {
    ParsedLine line;
    line.exit_code = kWrongUsage;
    line.err = "distilld: " + message + "\n";
    return line;
}

}  // namespace

ParsedLine parse_command_line(std::vector<std::string> arguments) {
    CLI::App app{"distilld: trains a small student language model to imitate a large teacher", "distilld"};
    app.set_version_flag("--version", kVersionLine);
    app.require_subcommand(1);
    ServeCommand serve;
    RunCommand run;
    SpecFlags spec_flags;
    TeacherCommand teacher;
    JobsCommand jobs;
    HealthcheckCommand healthcheck;
    add_serve(app, serve);
    add_run(app, run, spec_flags);
    add_teacher(app, teacher.options);
    add_jobs(app, jobs);
    add_command(app, "healthcheck", "Ask a running service whether it is ready; exit code 0 or 1")
        ->add_option("--server", healthcheck.server, "URL of the service")
        ->capture_default_str();

    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes a vector
    try {
        app.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
        std::ostringstream out;
        std::ostringstream err;
        const int code = app.exit(error, out, err);
        return ParsedLine{std::nullopt, code == 0 ? kDone : kWrongUsage, out.str(), err.str()};
    }

    ParsedLine line;
    if (app.got_subcommand("serve")) {
        line.command = serve;
    }
    if (app.got_subcommand("teacher")) {
        line.command = teacher;
    }
    if (app.got_subcommand("jobs")) {
        line.command = jobs;
    }
    if (app.got_subcommand("healthcheck")) {
        line.command = healthcheck;
    }
    if (app.got_subcommand("run")) {
        auto overrides = overrides_of(spec_flags);
        if (!overrides) {
            return usage_error(overrides.error().message);
        }
        run.overrides = std::move(*overrides);
        line.command = run;
    }
    return line;
}

}  // namespace distilld::cli
