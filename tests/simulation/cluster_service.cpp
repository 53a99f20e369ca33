#include "tests/simulation/cluster_service.hpp"

#include <boost/asio/co_spawn.hpp>
#include <exception>
#include <stdexcept>
#include <utility>

#include "server/supervisor/slurm/slurm_launcher.hpp"

namespace distilld::test {
namespace {

namespace asio = boost::asio;

/// Deaths in a row are not what is tested: no job fails of them.
constexpr std::uint32_t kMaxRestarts = 1'000'000;

template <class T>
T must(Result<T> result) {
    if (!result) {
        throw std::runtime_error(result.error().message);
    }
    return *std::move(result);
}

}  // namespace

ServiceProcess::ServiceProcess(Stage& stage, ServiceSurroundings around, std::function<void()> on_exit)
    : Process(stage, "the service"), around_(std::move(around)), on_exit_(std::move(on_exit)) {}

void ServiceProcess::start() {
    JobManagerOptions options;
    options.slots = 256;
    options.restarts.max_restarts = kMaxRestarts;
    options.working_directory = "/";
    slurm::CommandsOptions commands;
    commands.path = around_.programs.string();
    commands.run = [&slurm = around_.slurm, self = weak_from_this()](Command command) {
        return slurm.run(self, std::move(command));
    };
    slurm::SlurmOptions launcher{.commands = must(slurm::Commands::find(std::move(commands))),
                                 .folder = must(TokenFolder::open(around_.tokens)),
                                 .url = "http://service",
                                 .ca_file = {},
                                 .program = "/usr/bin/distilld",
                                 .with_log = [](const auto& make, bool) { return make({}); }};
    core_ = std::make_unique<JobManager::Core>(std::move(options), make_service_store(around_.disk, *this),
                                               slurm::make_slurm_launcher(std::move(launcher), attempts_),
                                               std::make_shared<JobMetrics>());
    begin();
    around_.network.serve({weak_from_this(), &attempts_});
    post([this] { core_->start(); });
    stage_.tell("the service starts");
}

void ServiceProcess::terminate() {
    post([this] { asio::co_spawn(core_->io, core_->stop(), [this](const std::exception_ptr&) { kill(); }); });
}

void ServiceProcess::on_kill() {
    around_.disk.disarm();
    around_.network.service_ended();
    on_exit_();
}

ServiceProcess::~ServiceProcess() {
    // A process that is killed removes no tokens.
    const auto aside = around_.tokens.string() + ".aside";
    std::filesystem::rename(around_.tokens, aside);
    core_.reset();
    std::filesystem::rename(aside, around_.tokens);
}

}  // namespace distilld::test
