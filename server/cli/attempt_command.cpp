#include <CLI/CLI.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/files/files.hpp"
#include "base/utf8.hpp"
#include "distilld_version.hpp"
#include "net/tls_context.hpp"
#include "server/cli/commands.hpp"
#include "server/supervisor/ranked_worker.hpp"
#include "server/supervisor/relay.hpp"
#include "server/supervisor/remote_attempts.hpp"
#include "server/supervisor/slurm/allocation.hpp"
#include "server/supervisor/worker_environment.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld::cli {
namespace {

namespace asio = boost::asio;

constexpr std::uint64_t kMaxTokenFileBytes = 4096;

struct AttemptFlags {
    std::string service;
    std::filesystem::path token_file;
    std::filesystem::path ca_file;
};

void say_of_attempt(const std::string& message) {
    std::fprintf(stderr, "distilld attempt: %s\n", to_shown_utf8(message).c_str());
}

Result<RelayOptions> relay_options(const AttemptFlags& flags) {
    auto service = parse_endpoint_url(flags.service, kAttemptChannelPath);
    if (!service) {
        return service.error();
    }
    auto token = read_text_file(flags.token_file, kMaxTokenFileBytes);
    if (!token) {
        return token.error();
    }
    while (!token->empty() && (token->back() == '\n' || token->back() == '\r' || token->back() == ' ')) {
        token->pop_back();
    }
    if (token->empty() || token->find_first_of("\r\n ") != std::string::npos) {
        return invalid_input(flags.token_file.string() + ": does not hold one token");
    }
    RelayOptions options;
    if (service->tls) {
        auto tls = make_tls_client_context({.ca = flags.ca_file});
        if (!tls) {
            return tls.error();
        }
        options.tls = *std::move(tls);
    }
    options.service = *std::move(service);
    options.token = *std::move(token);
    options.user_agent = std::string("distilld/") + kVersion;
    options.say = say_of_attempt;
    return options;
}

/// The ranks that the spec places on nodes: those of the first one are children of this process, srun starts the
/// others.
Result<std::unique_ptr<WorkerProcess>> make_placed_worker(asio::any_io_executor executor, const JobSpec* spec,
                                                          WorkerOutput::LineSink sink) {
    WorkerProcessOptions worker;
    worker.program = default_worker_program();
    worker.environment = worker_environment();
    worker.stderr_sink = std::move(sink);
    const PlacementSpec placement = spec == nullptr ? PlacementSpec() : spec->placement.value_or(PlacementSpec());
    RankLayout layout;
    if (placement.ranks() > 1) {
        layout.count = placement.ranks();
        layout.per_machine = placement.ranks_per_node;
    }
    slurm::Allocation given;
    if (placement.nodes > 1) {
        auto allocation = slurm::read_allocation(environment_variable);
        if (!allocation) {
            return allocation.error();
        }
        given = *std::move(allocation);
        if (given.nodes.size() < placement.nodes) {
            return invalid_input("/placement/nodes is " + std::to_string(placement.nodes) + ", but Slurm job " +
                                 std::to_string(given.job) + " has " + std::to_string(given.nodes.size()));
        }
        layout.host = given.host;
    }
    const auto make_rank = [executor, worker, given, per_node = placement.ranks_per_node](std::uint32_t rank) {
        const std::uint32_t node = rank / per_node;
        return make_worker_process(
            executor, given.nodes.empty() || node == 0 ? worker : slurm::on_node(given, given.nodes.at(node), worker));
    };
    return make_ranked_worker(executor, make_rank, std::move(layout));
}

int run_attempt(RelayOptions options) {
    asio::io_context context(1);
    options.make_worker = [&context](const JobSpec* spec, WorkerOutput::LineSink sink) {
        return make_placed_worker(context.get_executor(), spec, std::move(sink));
    };
    Relay relay(context.get_executor(), std::move(options));
    asio::signal_set signals(context, SIGINT, SIGTERM);
    std::function<void(const boost::system::error_code&, int)> on_signal = [&](const auto& ec, int) {
        if (!ec) {
            relay.stop();
            signals.async_wait(on_signal);
        }
    };
    signals.async_wait(on_signal);
    std::exception_ptr thrown;
    Result<void> outcome;
    asio::co_spawn(context, relay.run(), [&](const std::exception_ptr& failure, const Result<void>& result) {
        thrown = failure;
        outcome = result;
        signals.cancel();
    });
    context.run();
    if (thrown) {
        std::rethrow_exception(thrown);
    }
    if (!outcome) {
        say_of_attempt(outcome.error().message);
        return kFailed;
    }
    return kDone;
}

}  // namespace

int execute_attempt(std::vector<std::string> arguments) {
    CLI::App app{"runs one attempt of a job for a service on another machine; a launcher starts it",
                 "distilld attempt"};
    AttemptFlags flags;
    app.add_option("--service", flags.service, "URL of the service")->required();
    app.add_option("--token-file", flags.token_file, "file with the token of the attempt")->required();
    app.add_option("--ca-file", flags.ca_file, "PEM file with authorities besides the system's");
    try {
        app.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? kDone : kWrongUsage;
    }
    auto options = relay_options(flags);
    if (!options) {
        say_of_attempt(options.error().message);
        return kWrongUsage;
    }
    return run_attempt(*std::move(options));
}

}  // namespace distilld::cli
