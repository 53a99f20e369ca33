#include "tests/simulation/cluster_world.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "server/jobs/store/sqlite_job_store.hpp"
#include "server/support/log.hpp"
#include "tests/simulation/cluster_check.hpp"
#include "tests/simulation/cluster_faults.hpp"
#include "tests/simulation/cluster_relay.hpp"
#include "tests/simulation/cluster_service.hpp"
#include "tests/simulation/cluster_user.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::test {
namespace {

/// From the last fault on, all jobs must end.
constexpr Millis kLatestEnd = 2 * 3'600'000;

std::unique_ptr<JobStore> memory_store() {
    auto store = open_sqlite_job_store(":memory:");
    if (!store) {
        throw std::runtime_error(store.error().message);
    }
    return *std::move(store);
}

class Cluster {
  public:
    explicit Cluster(const ClusterOptions& options)
        : stage_(options),
          disk_(stage_, memory_store()),
          network_(stage_, disk_),
          slurm_(stage_, options.nodes,
                 [this](const auto& name, const auto& token_file, std::uint32_t node, auto on_exit) {
                     return launch(name, token_file, node, std::move(on_exit));
                 }) {
        std::filesystem::create_directory(folder_ / "bin");
        for (const char* program : {"sbatch", "scancel", "squeue", "sinfo", "scontrol"}) {
            const auto file = folder_.write(std::string("bin/") + program, "");
            std::filesystem::permissions(file, std::filesystem::perms::owner_all);
        }
        for (std::uint32_t job = 0; job < options.jobs; ++job) {
            users_.push_back(std::make_unique<User>(stage_, [this] { return service_.lock(); }, job));
            folders_.emplace(users_.back()->job(), JobFolder(stage_, users_.back()->job()));
        }
    }
    ~Cluster() { stage_.clear(); }
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    ClusterResult run() {
        start_service();
        for (const auto& user : users_) {
            user->begin();
        }
        ClusterFaults faults(stage_, {disk_, network_, slurm_, [this] { return service_.lock(); }});
        const Millis quiet = faults.plan();
        const Millis begin = stage_.now();
        Millis looked = 0;
        while (stage_.result.violations.empty() && stage_.step()) {
            if (stage_.now() < looked + 1000) {
                continue;
            }
            looked = stage_.now();
            if (looked > quiet && is_over()) {
                break;
            }
            if (looked > quiet + kLatestEnd) {
                stage_.violate("no end within two hours of the last fault: " + what_is_left());
            }
        }
        if (stage_.result.violations.empty()) {
            check_cluster(stage_, disk_, folders_, said_, users_, slurm_);
            check_tokens();
        }
        stage_.result.virtual_seconds = static_cast<double>(stage_.now() - begin) / 1000;
        return stage_.result;
    }

  private:
    void start_service() {
        std::filesystem::create_directory(folder_ / "tokens");
        std::filesystem::permissions(folder_ / "tokens", std::filesystem::perms::owner_all);
        const auto service = std::make_shared<ServiceProcess>(
            stage_, ServiceSurroundings{disk_, network_, slurm_, folder_ / "bin", folder_ / "tokens"}, [this] {
                ++stage_.result.restarts;
                stage_.at(300 + static_cast<Millis>(stage_.draw(15'000)), [this] { start_service(); });
            });
        service->start();
        service_ = service;
        stage_.add(service);
    }

    std::shared_ptr<ScriptProcess> launch(const std::string& name, const std::string& token_file, std::uint32_t node,
                                          std::function<void()> on_exit) {
        std::ifstream file(token_file);
        std::string token;
        std::getline(file, token);
        if (token.empty()) {
            stage_.tell(name + " finds no token");
            return nullptr;
        }
        ++stage_.result.attempts;
        const auto relay =
            std::make_shared<RelayProcess>(stage_, name.substr(std::string("distilld-").size()), std::move(on_exit));
        relay->start(network_, folders_, said_, token, node);
        stage_.tell(relay->name() + " starts on node " + std::to_string(node));
        stage_.add(relay);
        return relay;
    }

    [[nodiscard]] bool is_over() {
        const bool served = std::ranges::all_of(users_, [](const auto& user) { return user->is_done(); });
        return served && stage_.living() == 1 && slurm_.unended().empty() && disk_.store().unfinished().empty();
    }

    std::string what_is_left() {
        std::string left;
        for (const auto& user : users_) {
            left += user->is_done() ? "" : "the user of " + user->job() + " has no answer; ";
        }
        for (const StoredJob& stored : disk_.store().unfinished()) {
            left += stored.job.id + " is " + api::to_string(stored.job.state) + "; ";
        }
        for (const std::string& name : slurm_.unended()) {
            left += "Slurm has " + name + "; ";
        }
        return left + std::to_string(stage_.living()) + " processes live";
    }

    /// A service that is killed between a job's end and the removal of its token leaves the file, which is of no use.
    void check_tokens() {
        if (stage_.result.restarts > 0) {
            return;
        }
        for (const auto& entry : std::filesystem::directory_iterator(folder_ / "tokens")) {
            stage_.violate("a token is left: " + entry.path().filename().string());
        }
    }

    TemporaryFolder folder_;
    Stage stage_;
    StoreDisk disk_;
    Network network_;
    SimulatedSlurm slurm_;
    JobFolders folders_;
    Said said_;
    std::vector<std::unique_ptr<User>> users_;
    std::weak_ptr<ServiceProcess> service_;
};

}  // namespace

ClusterResult run_cluster(const ClusterOptions& options) {
    log::configure(log::Level::error);
    return Cluster(options).run();
}

ClusterOptions drawn_cluster(std::uint64_t seed) {
    SplitMix64 random(seed);
    ClusterOptions options;
    options.seed = seed;
    options.jobs = 1 + static_cast<std::uint32_t>(random.below(4));
    options.nodes = 1 + static_cast<std::uint32_t>(random.below(4));
    options.faults = static_cast<std::uint32_t>(random.below(8));
    options.steps = 4 + static_cast<std::uint32_t>(random.below(24));
    const std::uint32_t paces[] = {2'000, 8'000, 40'000};
    options.step_millis = paces[random.below(std::size(paces))];
    return options;
}

}  // namespace distilld::test
