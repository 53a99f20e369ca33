#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/files/folder_lock.hpp"
#include "base/this_machine.hpp"
#include "distilld_version.hpp"
#include "pipeline/async/tuple.hpp"
#include "pipeline/core/teacher_key_root.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/serve_launcher.hpp"
#include "server/cli/serve_security.hpp"
#include "server/cli/service_watchdog.hpp"
#include "server/http/http_server.hpp"
#include "server/jobs/checks/estimate_process.hpp"
#include "server/jobs/checks/placement_check.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/logged_worker.hpp"
#include "server/jobs/metrics/job_metrics.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/attempt_routes.hpp"
#include "server/jobs/routes/job_routes.hpp"
#include "server/jobs/routes/metrics_routes.hpp"
#include "server/jobs/store/job_logs.hpp"
#include "server/jobs/store/sqlite_job_store.hpp"
#include "server/jobs/table/slot_plan.hpp"
#include "server/openai/file_store.hpp"
#include "server/openai/openai_routes.hpp"
#include "server/security/key_file.hpp"
#include "server/supervisor/launcher.hpp"
#include "server/supervisor/slurm/slurm_launcher.hpp"
#include "server/supervisor/worker_environment.hpp"
#include "server/supervisor/worker_process.hpp"
#include "server/support/log.hpp"
#include "server/support/service_notifier.hpp"
#include "server/webhooks/webhook_outbox.hpp"
#include "server/webhooks/webhook_sender.hpp"
#include "server/webhooks/webhook_signature.hpp"

namespace distilld::cli {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kConnectionGrace{5};
constexpr std::chrono::seconds kLockPatience{1};

/// If the log is for programs, prints a line of the log, since it may contain nothing else.
void print_error(const ServiceSettings& settings, const std::string& message) {
    if (settings.log.json) {
        log::error("serve", message);
    } else {
        std::fprintf(stderr, "distilld serve: %s\n", message.c_str());
    }
}

/// Number of connections that there are descriptors for. Raises the soft limit if allowed: the usual 1024 is for
/// programs that call select(), which we do not.
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

WorkerProcessOptions job_worker_options(const JobsSettings& settings) {
    WorkerProcessOptions options;
    options.nice = static_cast<int>(settings.worker_nice);
    options.program = default_worker_program();
    options.environment = worker_environment();
    return options;
}

/// The workers' share of the drain timeout. The rest is for storing their ends and closing connections.
std::chrono::milliseconds workers_share(std::chrono::milliseconds drain_timeout) {
    return drain_timeout - std::min<std::chrono::milliseconds>(drain_timeout / 4, 2 * kConnectionGrace);
}

/// Of a cluster, which has a queue of its own.
constexpr std::uint32_t kClusterSlots = 256;

Result<std::vector<Slot>> planned_slots(const ServiceSettings& settings) {
    if (settings.launcher.kind == LauncherKind::slurm) {
        std::vector<Slot> slots(settings.jobs.slots != 0 ? settings.jobs.slots : kClusterSlots);
        for (std::uint32_t number = 0; number < slots.size(); ++number) {
            slots[number].number = number;
        }
        return slots;
    }
    std::optional<std::uint32_t> count;
    if (settings.jobs.slots != 0) {
        count = settings.jobs.slots;
    }
    return plan_slots(settings.jobs.slots_by, count, this_machine());
}

/// distilld itself, as nodes with the same file system find it.
std::filesystem::path own_program() {
    return std::filesystem::read_symlink("/proc/self/exe");
}

/// What workers of this machine share.
Node this_node() {
    const SlotMachine machine = this_machine();
    Node node;
    node.name = host_name();
    node.cores = static_cast<std::uint32_t>(machine.cores.size());
    node.gpus = static_cast<std::uint32_t>(machine.devices.size());
    const auto bytes = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES))) *
                       static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
    node.memory_mb = bytes >> 20;
    return node;
}

JobManagerOptions manager_options(const ServiceSettings& settings, std::vector<Slot> slots) {
    JobManagerOptions options(settings.jobs);
    options.working_directory = std::filesystem::current_path();
    options.slots = static_cast<std::uint32_t>(slots.size());
    options.slot_layout = std::move(slots);
    options.heartbeat = settings.server.heartbeat;
    options.stop_limit = workers_share(settings.server.drain_timeout);
    return options;
}

/// The policy, and the rules of the launcher.
SpecPolicy with_placement(SpecPolicy policy, LauncherSettings launcher) {
    return [policy = std::move(policy), launcher = std::move(launcher)](const JobSpec& spec) {
        auto found = policy(spec);
        std::ranges::move(check_placement(spec, launcher).violations, std::back_inserter(found.violations));
        return found;
    };
}

http::ServerOptions server_options(const ServerSettings& settings) {
    http::ServerOptions options;
    options.listen = settings.listen;
    options.hosts = settings.hosts;
    options.body_limit = settings.body_limit;
    options.max_connections = affordable_connections(settings.max_connections);
    options.max_streams = settings.max_streams == 0 ? options.max_connections / 2 : settings.max_streams;
    options.header_timeout = std::chrono::ceil<std::chrono::seconds>(settings.header_timeout);
    options.idle_timeout = std::chrono::ceil<std::chrono::seconds>(settings.idle_timeout);
    options.handler_timeout = std::chrono::ceil<std::chrono::seconds>(settings.handler_timeout);
    return options;
}

/// Also made without receivers, to drop what still waits from the last run. The manager must outlive the sender.
Result<std::unique_ptr<webhooks::WebhookSender>> make_webhooks(const WebhooksSettings& settings,
                                                               const std::filesystem::path& store_file,
                                                               JobManager& manager, JobMetrics& metrics) {
    webhooks::WebhookOptions options{settings};
    if (!options.urls.empty()) {
        auto secrets = webhooks::read_webhook_secrets(settings.secret_file);
        if (!secrets) {
            return invalid_input("webhooks.secret_file: " + secrets.error().message);
        }
        options.secrets = *std::move(secrets);
    }
    auto outbox = webhooks::open_webhook_outbox(store_file);
    if (!outbox) {
        return outbox.error();
    }
    return webhooks::make_webhook_sender(
        std::move(options), *std::move(outbox), [&manager](std::string id) { return manager.get(std::move(id)); },
        [&metrics](const char* result) {
            metrics.update([result](ServiceCounts& counts) { ++counts.webhook_attempts[result]; });
        });
}

struct Service {
    JobManager& manager;
    http::Server& server;
    asio::signal_set& signals;
    ServiceWatchdog& watchdog;
    const ServiceNotifier& notifier;
    asio::steady_timer& drain;  ///< its owner cancels it when all has ended
    std::chrono::milliseconds drain_timeout;
    bool secure = false;
    bool workers_go_on = false;
};

/// We cannot fix what hangs then: a process that cannot be killed, a disk that does not answer. All that was committed
/// is complete, and the jobs resume at the next start.
void end_late(const boost::system::error_code& ec) {
    if (!ec) {
        log::error("serve", "not stopped within the drain timeout: ending now");
        std::_Exit(kFailed);
    }
}

asio::awaitable<void> run_service(Service service) {
    co_await service.manager.start();
    const auto listening =
        std::string("listening on ") + (service.secure ? "https://" : "http://") + service.server.address();
    std::printf("distilld serve: %s\n", listening.c_str());
    std::fflush(stdout);
    service.notifier.send("READY=1\nSTATUS=" + listening);
    // First signal: an orderly end. Second: exits at once. The workers save their last step by themselves, and their
    // jobs are resumed at the next start.
    co_await service.signals.async_wait(kTuple);
    const std::string what = service.workers_go_on
                                 ? "stopping: workers on other machines go on"
                                 : "stopping: running jobs write a checkpoint and go back to the queue";
    log::info("serve", what + "; a second signal ends at once");
    service.notifier.send("STOPPING=1\nSTATUS=" + what);
    service.signals.async_wait([](const boost::system::error_code& ec, int) {
        if (!ec) {
            std::_Exit(kFailed);
        }
    });
    service.drain.expires_after(service.drain_timeout);
    service.drain.async_wait(end_late);
    // From here on /readyz answers 503 and no job is accepted; status and metrics are served until the jobs have
    // stopped.
    co_await service.manager.stop();
    service.signals.cancel();
    service.watchdog.stop();
    service.server.stop(kConnectionGrace);
}

}  // namespace

int execute(const ServeCommand& command) {
    const auto& settings = command.effective.settings;
    log::configure(settings.log.level, settings.log.json);
    for (const auto& warning : command.effective.warnings) {
        log::warn("serve", warning);
    }
    auto slots = planned_slots(settings);
    if (!slots) {
        print_error(settings, slots.error().message);
        return kWrongUsage;
    }
    const auto& data_dir = settings.jobs.data_dir;
    std::error_code ec;
    std::filesystem::create_directories(data_dir, ec);
    if (ec) {
        print_error(settings, "cannot make the data folder " + data_dir.string() + ": " + ec.message());
        return kFailed;
    }
    if (!settings.teacher.key_root.empty()) {
        // Workers inherit it. Set before any thread exists.
        ::setenv(kKeyRootVariable, settings.teacher.key_root.c_str(), 1);
    }
    // Two services on one data folder would run each job twice. A service that was killed while it started a worker
    // holds the lock until that process has called exec.
    const auto lock = FolderLock::try_lock_file(data_dir, LockShare::exclusive, "lock", kLockPatience);
    if (!lock || !*lock) {
        print_error(settings, lock ? "data folder " + data_dir.string() + " is in use by another distilld serve"
                                   : lock.error().message);
        return kFailed;
    }
    auto security = open_security(settings.security, settings.server.listen, data_dir);
    if (!security) {
        print_error(settings, security.error().message);
        return security.error().kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
    }
    const auto store_file = data_dir / "jobs.sqlite";
    auto store = open_sqlite_job_store(store_file);
    if (!store) {
        print_error(settings, store.error().message);
        return kFailed;
    }
    RemoteAttempts attempts;
    JobMetricsOptions counted{.version = kVersion, .store_file = store_file};
    if (settings.launcher.kind == LauncherKind::slurm) {
        counted.links = [&attempts] { return attempts.counts(); };
    }
    const auto metrics = std::make_shared<JobMetrics>(std::move(counted));
    auto options = manager_options(settings, *std::move(slots));
    options.policy = with_placement(security->policy, settings.launcher);
    options.start_policy = with_placement(security->start_policy, settings.launcher);
    options.files = security->files;
    const auto logs = std::make_shared<JobLogs>(data_dir / "logs");
    std::unique_ptr<Launcher> launcher;
    if (settings.launcher.kind == LauncherKind::slurm) {
        std::vector<std::string> open = settings.security.roots;
        if (open.empty() && security->keys->protects()) {
            open.push_back(std::filesystem::current_path().string());
        }
        if (const auto good = check_launcher_folder(settings.launcher, open, data_dir); !good) {
            print_error(settings, good.error().message);
            return kWrongUsage;
        }
        auto cluster = open_cluster(settings.launcher, settings.server.listen, security->tls != nullptr, data_dir);
        if (!cluster) {
            print_error(settings, cluster.error().message);
            return cluster.error().kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
        }
        const auto with_log = [logs](const MakeLoudWorker& make_worker, bool adopted) {
            return make_logged_worker(logs, make_worker, adopted);
        };
        slurm::SlurmOptions places{std::move(cluster->commands),
                                   std::move(cluster->folder),
                                   std::move(cluster->url),
                                   settings.launcher.ca_file,
                                   own_program(),
                                   with_log};
        launcher = slurm::make_slurm_launcher(std::move(places), attempts);
    } else {
        launcher = make_local_launcher(this_node(), options.slots,
                                       make_logged_workers(job_worker_options(settings.jobs), logs));
    }
    const auto manager = std::make_unique<JobManager>(options, std::move(*store), std::move(launcher), metrics);

    auto files = openai::FileStore::open(store_file, data_dir / kFilesFolder, settings.server.upload_space);
    if (!files) {
        print_error(settings, files.error().message);
        return kFailed;
    }
    EstimateProcessOptions estimates;
    estimates.program = "/proc/self/exe";
    estimates.arguments = {kEstimateArgument};
    auto routes = make_job_routes(*manager, metrics, logs,
                                  {.run = make_estimate_processes(std::move(estimates)), .files = security->files},
                                  security->start_policy);
    add_routes(routes, openai::make_openai_routes(
                           {*manager, *files, data_dir / kOutputsFolder, settings.server.max_upload_size}));

    if (settings.launcher.kind == LauncherKind::slurm) {
        routes.push_back(make_attempt_route(attempts));
    }

    auto webhooks = make_webhooks(settings.webhooks, store_file, *manager, *metrics);
    if (!webhooks) {
        print_error(settings, webhooks.error().message);
        return webhooks.error().kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
    }

    asio::io_context context(1);
    asio::signal_set signals(context, SIGINT, SIGTERM);
    auto guarded = server_options(settings.server);
    guard_server(guarded, *security, settings.security);
    auto server = http::make_server(context.get_executor(), std::move(guarded), std::move(routes),
                                    make_metrics_observer(metrics));
    if (!server) {
        print_error(settings, server.error().message);
        return server.error().kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
    }

    // If either of the two ends with an exception, the service ends: half of it is of no use.
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
    const auto notifier = ServiceNotifier::from_environment();
    ServiceWatchdog watchdog(context.get_executor(), notifier, [&manager] { return manager->answer(); });
    asio::steady_timer drain(context);
    asio::co_spawn(context, (*server)->run(), [&](const std::exception_ptr& failure) {
        drain.cancel();  // the last connection has closed
        ended(failure);
    });
    asio::co_spawn(context, watchdog.run(), ended);
    asio::co_spawn(context,
                   run_service({*manager, **server, signals, watchdog, notifier, drain, settings.server.drain_timeout,
                                security->tls != nullptr, settings.launcher.kind != LauncherKind::local}),
                   ended);
    context.run();
    if (failed) {
        try {
            std::rethrow_exception(failed);
        } catch (const std::exception& error) {
            print_error(settings, error.what());
        }
        return kFailed;
    }
    log::info("serve", "stopped");
    return kDone;
}

}  // namespace distilld::cli
