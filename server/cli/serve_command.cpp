#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/folder_lock.hpp"
#include "distilld_version.hpp"
#include "pipeline/async/tuple.hpp"
#include "pipeline/core/teacher_key_root.hpp"
#include "server/cli/commands.hpp"
#include "server/http/http_server.hpp"
#include "server/jobs/job_logs.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/job_metrics.hpp"
#include "server/jobs/job_routes.hpp"
#include "server/jobs/job_store.hpp"
#include "server/jobs/logged_worker.hpp"
#include "server/jobs/metrics_routes.hpp"
#include "server/supervisor/worker_environment.hpp"
#include "server/supervisor/worker_process.hpp"
#include "server/support/log.hpp"

namespace distilld::cli {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kConnectionGrace{5};

/// A line of the log when the log is for programs: nothing else may stand in it.
void print_error(const ServeCommand& command, const std::string& message) {
    if (command.log_json) {
        log::error("serve", message);
    } else {
        std::fprintf(stderr, "distilld serve: %s\n", message.c_str());
    }
}

/// How many connections there are descriptors for. The usual soft limit of 1024 is there for programs that call
/// select(), which we do not: we take more where we may.
std::uint32_t affordable_connections(std::uint32_t wanted) {
    constexpr rlim_t kOthers = 256;  // store, workers, files
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return wanted;
    }
    if (limit.rlim_cur < wanted + kOthers) {
        limit.rlim_cur = std::min(limit.rlim_max, wanted + kOthers);
        static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
        static_cast<void>(::getrlimit(RLIMIT_NOFILE, &limit));
    }
    const rlim_t left = limit.rlim_cur > 2 * kOthers ? limit.rlim_cur - kOthers : limit.rlim_cur / 2;
    return static_cast<std::uint32_t>(std::min<rlim_t>(wanted, left));
}

WorkerProcessOptions job_worker_options() {
    WorkerProcessOptions options;
    options.program = default_worker_program();
    options.environment = worker_environment();
    return options;
}

/// First signal: an orderly end. Second: out, at once; the workers save their last step by themselves, and their jobs
/// are resumed at the next start.
asio::awaitable<void> wait_for_signal(asio::signal_set& signals) {
    co_await signals.async_wait(kTuple);
}

struct Service {
    JobManager& manager;
    http::Server& server;
    asio::signal_set& signals;
};

asio::awaitable<void> run_service(Service service) {
    co_await service.manager.start();
    std::printf("distilld serve: listening on http://%s\n", service.server.address().c_str());
    std::fflush(stdout);
    co_await wait_for_signal(service.signals);
    log::info("serve",
              "stopping: running jobs write a checkpoint and go back to the queue; a second signal ends at once");
    service.signals.async_wait([](const boost::system::error_code& ec, int) {
        if (!ec) {
            std::_Exit(kFailed);
        }
    });
    // From here on /readyz says 503 and no job is taken; status and metrics are served until the jobs have stopped.
    co_await service.manager.stop();
    service.signals.cancel();
    service.server.stop(kConnectionGrace);
}

}  // namespace

int serve(const ServeCommand& command) {
    log::configure(log::Level::info, command.log_json);
    std::error_code ec;
    std::filesystem::create_directories(command.data_dir, ec);
    if (ec) {
        print_error(command, "cannot make the data folder " + command.data_dir.string() + ": " + ec.message());
        return kFailed;
    }
    if (!command.key_root.empty()) {
        // Workers inherit it. Before any thread is there.
        ::setenv(kKeyRootVariable, std::filesystem::absolute(command.key_root).c_str(), 1);
    }
    const auto data_dir = std::filesystem::absolute(command.data_dir);
    // Two services on one data folder would run one job twice.
    const auto lock = FolderLock::try_lock_file(data_dir);
    if (!lock || !*lock) {
        print_error(command, lock ? "data folder " + data_dir.string() + " is in use by another distilld serve"
                                  : lock.error().message);
        return kFailed;
    }
    const auto store_file = data_dir / "jobs.sqlite";
    auto store = open_sqlite_job_store(store_file);
    if (!store) {
        print_error(command, store.error().message);
        return kFailed;
    }
    const auto metrics = make_job_metrics(JobMetricsOptions{.version = kVersion, .store_file = store_file});
    JobManagerOptions options;
    options.working_directory = std::filesystem::current_path();
    options.slots = command.slots;
    options.restarts.max_restarts = command.max_worker_restarts;
    options.restarts.max_oom_restarts = command.max_oom_restarts;
    options.max_queued = command.max_queued;
    const auto logs = std::make_shared<JobLogs>(data_dir / "logs");
    const auto manager =
        make_job_manager(options, std::move(*store), make_logged_workers(job_worker_options(), logs), metrics);

    asio::io_context context(1);
    asio::signal_set signals(context, SIGINT, SIGTERM);
    http::ServerOptions server_options;
    server_options.listen = command.listen;
    server_options.hosts = command.hosts;
    server_options.max_connections = affordable_connections(server_options.max_connections);
    server_options.max_streams = server_options.max_connections / 2;
    auto server = http::make_server(context.get_executor(), server_options, make_job_routes(*manager, metrics, logs),
                                    make_metrics_observer(metrics));
    if (!server) {
        print_error(command, server.error().message);
        return server.error().kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
    }

    // Whichever of the two ends with an exception ends the service: there is no half of it worth keeping.
    std::exception_ptr failed;
    auto ended = [&](const std::exception_ptr& failure) {
        if (!failure) {
            return;
        }
        if (!failed) {
            failed = failure;
        }
        context.stop();
    };
    asio::co_spawn(context, (*server)->run(), ended);
    asio::co_spawn(context, run_service(Service{*manager, **server, signals}), ended);
    context.run();
    if (failed) {
        try {
            std::rethrow_exception(failed);
        } catch (const std::exception& error) {
            print_error(command, error.what());
        }
        return kFailed;
    }
    log::info("serve", "stopped");
    return kDone;
}

}  // namespace distilld::cli
