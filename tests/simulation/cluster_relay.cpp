#include "tests/simulation/cluster_relay.hpp"

#include <boost/asio/co_spawn.hpp>
#include <exception>
#include <utility>

#include "pipeline/async/failure_message.hpp"

namespace distilld::test {

namespace asio = boost::asio;

namespace {

asio::awaitable<Result<std::shared_ptr<WebSocket>>> dial(Network& network, std::shared_ptr<Process> relay,
                                                         std::uint32_t node) {
    co_return network.socket(relay, node);
}

}  // namespace

RelayProcess::RelayProcess(Stage& stage, std::string name, std::function<void()> on_exit)
    : ScriptProcess(stage, std::move(name)), on_exit_(std::move(on_exit)) {
    begin();
}

RelayProcess::~RelayProcess() {
    relay_.reset();  // the rest of it goes with the coroutines
}

void RelayProcess::start(Network& network, JobFolders& folders, Said& said, std::string token, std::uint32_t node) {
    RelayOptions options;
    options.service.name = "service";
    options.token = std::move(token);
    options.say = [this](const std::string& line) { stage_.tell(name() + " says: " + line); };
    options.dial = [this, &network, node] { return dial(network, shared_from_this(), node); };
    options.make_worker = [this, &folders, &said, node](const JobSpec*, WorkerOutput::LineSink) {
        training_ = std::make_shared<Training>(stage_, folders, said, weak_from_this(), node);
        return Result<std::unique_ptr<WorkerProcess>>(make_simulated_worker(training_));
    };
    relay_ = std::make_unique<Relay>(io_.get_executor(), std::move(options));
    asio::co_spawn(io_, relay_->run(), [this](const std::exception_ptr& failure, const Result<void>& result) {
        if (failure) {
            stage_.violate(name() + ": " + failure_message(failure));
        }
        exited = true;
        exit_code = failure || !result ? 1 : 0;
        kill();
    });
}

void RelayProcess::terminate() {
    stage_.tell(name() + " gets SIGTERM");
    relay_->stop();
}

void RelayProcess::on_kill() {
    training_.reset();
    stage_.at(50, std::exchange(on_exit_, [] {}));
}

}  // namespace distilld::test
