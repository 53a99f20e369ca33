// distilld: control plane and command line. Does not link libtorch; distilld-worker does.
#include <cstdio>
#include <exception>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "server/cli/commands.hpp"
#include "server/jobs/checks/estimate_process.hpp"
#include "server/protocol/worker_protocol.hpp"

using namespace distilld::cli;

int main(int argc, char** argv) {
    try {
        if (argc == 2 && std::string_view(argv[1]) == kEstimateArgument) {
            return distilld::answer_estimate(distilld::kWorkerProtocolFd);
        }
        if (argc >= 2 && std::string_view(argv[1]) == kAttemptArgument) {
            return execute_attempt(
                std::vector<std::string>(std::reverse_iterator(argv + argc), std::reverse_iterator(argv + 2)));
        }
        const auto line = parse_command_line(std::vector<std::string>(argv + 1, argv + argc));
        std::fputs(line.out.c_str(), stdout);
        std::fputs(line.err.c_str(), stderr);
        if (!line.command) {
            return line.exit_code;
        }
        return std::visit([](const auto& command) { return execute(command); }, *line.command);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "distilld: %s\n", error.what());
        return distilld::kFailed;
    }
}
