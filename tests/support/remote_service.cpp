// A service with workers in other places: each is a relay (`distilld attempt`) in a session of its own on this machine,
// which outlives the service. Arguments: DATA_DIR LISTEN [URL at which relays reach the service
// [CERTIFICATE KEY]]; the certificate is its own authority.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <utility>

#include "net/tls_context.hpp"
#include "pipeline/async/tuple.hpp"
#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/logged_worker.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/attempt_routes.hpp"
#include "server/jobs/routes/job_routes.hpp"
#include "server/jobs/store/job_logs.hpp"
#include "server/jobs/store/sqlite_job_store.hpp"
#include "server/supervisor/remote_worker.hpp"

using namespace distilld;
namespace asio = boost::asio;

namespace {

struct Relays {
    std::filesystem::path folder;
    std::string url;
    std::string ca;  ///< empty: no TLS
};

/// The place's name is the relay's process id.
class ChildPlace final : public Place {
  public:
    ChildPlace(asio::any_io_executor executor, const Relays& relays, const std::string& name)
        : poll_(std::move(executor)), relays_(relays), pid_(name.empty() ? -1 : std::stoi(name)) {}

    asio::awaitable<Result<std::string>> begin(RelayOrder order) override {
        const auto stem = relays_.folder / (order.attempt.job + "-" + std::to_string(order.attempt.number));
        const std::string token_file = stem.string() + ".token";
        ::umask(077);
        std::ofstream(token_file) << order.token << "\n";
        const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "distilld";
        std::vector<std::string> words{program, "attempt", "--service", relays_.url, "--token-file", token_file};
        if (!relays_.ca.empty()) {
            words.insert(words.end(), {"--ca-file", relays_.ca});
        }
        std::vector<char*> arguments;
        for (auto& word : words) {
            arguments.push_back(word.data());
        }
        arguments.push_back(nullptr);
        posix_spawnattr_t attributes;
        ::posix_spawnattr_init(&attributes);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
        posix_spawn_file_actions_t files;
        ::posix_spawn_file_actions_init(&files);
        const std::string log = stem.string() + ".log";
        ::posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        ::posix_spawn_file_actions_adddup2(&files, 1, 2);
        ::posix_spawn_file_actions_addclosefrom_np(&files, 3);  // the service's port, above all
        const int failed = ::posix_spawn(&pid_, program.c_str(), &files, &attributes, arguments.data(), environ);
        ::posix_spawn_file_actions_destroy(&files);
        ::posix_spawnattr_destroy(&attributes);
        if (failed != 0) {
            co_return io_error("cannot start " + program);
        }
        co_return std::to_string(pid_);
    }

    asio::awaitable<PlaceEnd> ended() override {
        while (alive()) {
            poll_.expires_after(std::chrono::milliseconds(100));
            co_await poll_.async_wait(asio::use_awaitable);
        }
        co_return PlaceEnd{kWorkerKilled, "the relay " + std::to_string(pid_) + " is gone"};
    }

    void cancel() override {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
        }
    }

  private:
    bool alive() const {
        ::waitpid(pid_, nullptr, WNOHANG);  // it may be ours
        return ::kill(pid_, 0) == 0;
    }

    asio::steady_timer poll_;
    const Relays& relays_;
    pid_t pid_;
};

class ChildLauncher final : public Launcher {
  public:
    ChildLauncher(RemoteAttempts& attempts, const Relays& relays, std::shared_ptr<JobLogs> logs)
        : attempts_(attempts), relays_(relays), logs_(std::move(logs)) {}

    std::unique_ptr<WorkerProcess> make(asio::any_io_executor executor, const Attempt& attempt) override {
        return worker(std::move(executor), attempt, false);
    }
    bool outlives_service() const override { return true; }
    std::unique_ptr<WorkerProcess> adopt(asio::any_io_executor executor, const Attempt& attempt) override {
        return worker(std::move(executor), attempt, true);
    }
    void all_adopted() override { attempts_.complete(); }
    asio::awaitable<Result<std::vector<Node>>> nodes(std::vector<std::string> running) override {
        co_return std::vector<Node>{Node{.name = "here", .jobs = std::move(running)}};
    }

  private:
    std::unique_ptr<WorkerProcess> worker(asio::any_io_executor executor, const Attempt& attempt, bool adopted) {
        return make_logged_worker(
            logs_,
            [&](WorkerOutput::LineSink sink) {
                RemoteWorkerOptions options;
                options.attempt = {attempt.job_id, attempt.number};
                options.record = attempt.record;
                options.place = std::make_unique<ChildPlace>(executor, relays_,
                                                             adopted ? attempt.record->stored().place : std::string());
                options.adopted = adopted;
                options.output = std::move(sink);
                return make_remote_worker(executor, attempts_, std::move(options));
            },
            adopted);
    }

    RemoteAttempts& attempts_;
    const Relays& relays_;
    std::shared_ptr<JobLogs> logs_;
};

asio::awaitable<void> run_remote_service(JobManager& manager, http::Server& server, asio::signal_set& signals) {
    co_await manager.start();
    std::printf("listening on %s\n", server.address().c_str());
    std::fflush(stdout);
    co_await signals.async_wait(kTuple);
    co_await manager.stop();
    server.stop(std::chrono::seconds(5));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fputs("DATA_DIR LISTEN [URL]\n", stderr);
        return 2;
    }
    Relays relays{std::filesystem::absolute(argv[1]) / "relays", argc > 3 ? argv[3] : "", ""};
    std::filesystem::create_directories(relays.folder);
    const std::filesystem::path data_dir = relays.folder.parent_path();
    RemoteAttempts attempts;
    const auto logs = std::make_shared<JobLogs>(data_dir / "logs");
    auto store = open_sqlite_job_store(data_dir / "jobs.sqlite");
    if (!store) {
        std::fprintf(stderr, "%s\n", store.error().message.c_str());
        return 1;
    }
    JobManagerOptions options;
    options.working_directory = data_dir;
    options.metrics_interval = std::chrono::milliseconds(0);
    const auto metrics = std::make_shared<JobMetrics>(JobMetricsOptions{});
    JobManager manager(options, *std::move(store), std::make_unique<ChildLauncher>(attempts, relays, logs), metrics);
    auto routes = make_job_routes(manager, metrics, logs, {});
    routes.push_back(make_attempt_route(attempts));
    asio::io_context context(1);
    asio::signal_set signals(context, SIGINT, SIGTERM);
    http::ServerOptions serving;
    serving.listen = argv[2];
    if (argc > 5) {
        relays.ca = std::filesystem::absolute(argv[4]).string();
        serving.tls = make_tls_server_context({.certificate = argv[4], .key = argv[5]}).value();
    }
    auto server = http::make_server(context.get_executor(), serving, std::move(routes));
    if (!server) {
        std::fprintf(stderr, "%s\n", server.error().message.c_str());
        return 1;
    }
    if (relays.url.empty()) {
        relays.url = "http://" + (*server)->address();
    }
    const auto rethrow = [](const std::exception_ptr& failure) {
        if (failure) {
            std::rethrow_exception(failure);
        }
    };
    asio::co_spawn(context, (*server)->run(), rethrow);
    asio::co_spawn(context, run_remote_service(manager, **server, signals), rethrow);
    context.run();
    return 0;
}
