#include <unistd.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>

#include "api/job_spec_json.hpp"
#include "api/spec_overrides.hpp"
#include "api/spec_paths.hpp"
#include "base/environment.hpp"
#include "base/files/files.hpp"
#include "base/json_fields.hpp"
#include "base/json_text.hpp"
#include "base/utf8.hpp"
#include "pipeline/core/event_fields.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/metrics_server.hpp"
#include "server/cli/next_step.hpp"
#include "server/cli/progress_display.hpp"
#include "server/cli/rank_environment.hpp"
#include "server/jobs/checks/named_files_check.hpp"
#include "server/supervisor/ranked_worker.hpp"
#include "server/supervisor/restarting_worker.hpp"
#include "server/supervisor/worker_environment.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld::cli {
namespace {

namespace asio = boost::asio;

/// A second interrupt kills, so the first may wait for a large checkpoint.
constexpr std::chrono::seconds kStopGrace{600};

void print_error(const std::string& message) {
    std::fprintf(stderr, "distilld: %s\n", to_shown_utf8(message).c_str());
}

std::string absolute_text(const std::string& file) {
    return file.empty() ? file : std::filesystem::absolute(file).lexically_normal().string();
}

/// Makes the order for the worker. nullopt when the errors have been printed.
std::optional<WorkerStart> prepare(const RunCommand& command) {
    auto text = read_spec_text(command.spec);
    if (!text) {
        print_error(text.error().message);
        return std::nullopt;
    }
    if (!command.overrides.empty()) {
        text = api::apply_overrides(*text, command.overrides);
        if (!text) {
            print_error(command.spec + ": " + text.error().message);
            return std::nullopt;
        }
    }
    auto spec = api::parse_job_spec(*text);
    if (!spec) {
        print_error(command.spec + " is not a valid job spec:");
        std::fprintf(stderr, "%s\n", to_shown_utf8(api::describe(spec.error())).c_str());
        return std::nullopt;
    }
    if (const auto missing = check_named_files(*spec, LookInside::no); !missing.violations.empty()) {
        print_error(command.spec + " names files or folders that do not exist:");
        std::fprintf(stderr, "%s\n", to_shown_utf8(api::describe(missing)).c_str());
        return std::nullopt;
    }
    api::make_paths_absolute(*spec, std::filesystem::current_path());
    const auto rank = rank_from_environment(environment_variable);
    if (!rank) {
        print_error(rank.error().message);
        return std::nullopt;
    }
    WorkerStart start;
    start.rank = *rank;
    start.spec_json = api::to_json(*spec);
    start.resume = command.resume;
    start.trace_file = absolute_text(command.trace_file);
    start.spec = std::make_shared<const JobSpec>(*std::move(spec));
    return start;
}

/// First interrupt: cancel with a checkpoint. Second: kill.
class Interrupts {
  public:
    Interrupts(asio::io_context& context, WorkerProcess& process, asio::cancellation_signal& cancel,
               ProgressDisplay& display)
        : signals_(context, SIGINT, SIGTERM, SIGHUP), process_(process), cancel_(cancel), display_(display) {
        wait();
    }
    void close() { signals_.cancel(); }

  private:
    void wait() {
        signals_.async_wait([this](const boost::system::error_code& ec, int) {
            if (ec) {
                return;
            }
            if (++count_ == 1) {
                display_.line("stopping after a checkpoint; interrupt again to stop at once without one");
                cancel_.emit(asio::cancellation_type::terminal);
            } else {
                process_.kill();
            }
            wait();
        });
    }

    asio::signal_set signals_;
    WorkerProcess& process_;
    asio::cancellation_signal& cancel_;
    ProgressDisplay& display_;
    int count_ = 0;
};

}  // namespace

int execute(const RunCommand& command) {
    const auto start = prepare(command);
    if (!start) {
        return kWrongUsage;
    }
    // Checked now, not after hours of training.
    const std::filesystem::path report_folder = std::filesystem::path(command.report_file).parent_path();
    if (!report_folder.empty() && !std::filesystem::is_directory(report_folder)) {
        print_error("--report: there is no folder " + report_folder.string());
        return kWrongUsage;
    }

    asio::io_context context(1);
    ProgressDisplay display(print, terminal_width());
    std::unique_ptr<MetricsServer> metrics;
    if (!command.metrics_listen.empty()) {
        auto made =
            make_metrics_server(context.get_executor(), command.metrics_listen, start->spec->dataset.sequence_length);
        if (!made) {
            print_error("--metrics-listen: " + made.error().message);
            return made.error().kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
        }
        metrics = std::move(*made);
        display.line("metrics at " + metrics->url());
    }
    WorkerProcessOptions options;
    options.program = default_worker_program();
    options.environment = worker_environment();
    options.stop_grace = kStopGrace;
    if (::isatty(STDOUT_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0) {
        // The bar and the worker's output share the screen.
        options.stderr_sink = [&display](const std::string& line) { display.line(line); };
    }
    const auto make_rank = [&context, &options](std::uint32_t) {
        return make_worker_process(context.get_executor(), options);
    };
    const auto make_worker = [&context, &make_rank] { return make_ranked_worker(context.get_executor(), make_rank); };
    // If one of several ranks ends, all must begin again: their launcher's task.
    const bool alone = !start->rank;
    const auto process = make_restarting_worker(context.get_executor(), make_worker,
                                                alone ? RestartLimits{} : RestartLimits{0, {}, {}, 0});
    const bool reports = alone || start->rank->rank == 0;
    asio::cancellation_signal cancel;
    Interrupts interrupts(context, *process, cancel, display);

    std::optional<WorkerEvent> last;
    auto on_event = [&](const WorkerEvent& event) {
        if (reports || std::holds_alternative<LogEvent>(event)) {
            display.show(event, std::chrono::steady_clock::now());
        }
        if (metrics) {
            metrics->count(event);
        }
        if (ends_run(event)) {
            last = event;
        }
    };
    std::exception_ptr thrown;
    std::optional<Error> not_started;
    auto on_end = [&](const std::exception_ptr& failure, const Result<WorkerExit>& exit) {
        thrown = failure;
        if (!failure && !exit) {
            not_started = exit.error();
        }
        interrupts.close();
        if (metrics) {
            metrics->stop();
        }
    };
    asio::co_spawn(context, process->run(*start, on_event), asio::bind_cancellation_slot(cancel.slot(), on_end));
    context.run();

    display.finish();
    if (thrown) {
        std::rethrow_exception(thrown);
    }
    if (not_started) {
        print_error(not_started->message);
        return kFailed;
    }
    if (!last) {
        print_error("the worker ended without a result");
        return kFailed;
    }
    if (const auto* failed = std::get_if<FailedEvent>(&*last)) {
        print_error(failed->message);
        return kFailed;
    }
    if (std::holds_alternative<CancelledEvent>(*last)) {
        return kInterrupted;
    }
    if (!reports) {
        return kDone;
    }
    if (!command.report_file.empty()) {
        const auto report = to_text(write_fields(std::get<FinishedEvent>(*last))) + "\n";
        if (const auto written = write_file_atomically(command.report_file, report); !written) {
            print_error(written.error().message);
            return kFailed;
        }
    }
    display.line(next_step(*start->spec, std::get<FinishedEvent>(*last).output));
    return kDone;
}

}  // namespace distilld::cli
