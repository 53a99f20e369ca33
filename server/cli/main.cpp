// distilld: control plane and command line. Does not link libtorch; what needs it runs in distilld-worker.
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "server/cli/commands.hpp"
#include "server/jobs/estimate_process.hpp"
#include "server/protocol/worker_protocol.hpp"

namespace {

using namespace distilld::cli;

int dispatch(const ServeCommand& command) {
    return serve(command);
}
int dispatch(const RunCommand& command) {
    return run(command);
}
int dispatch(const TeacherCommand& command) {
    return teacher(command);
}
int dispatch(const JobsCommand& command) {
    return jobs(command);
}
int dispatch(const KeysCommand& command) {
    return keys(command);
}
int dispatch(const StoreCommand& command) {
    return store(command);
}
int dispatch(const SpecCommand& command) {
    return spec(command);
}
int dispatch(const TokenizeCommand& command) {
    return tokenize(command);
}
int dispatch(const HealthcheckCommand& command) {
    return healthcheck(command);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc == 2 && std::string_view(argv[1]) == kEstimateArgument) {
            return distilld::answer_estimate(distilld::kWorkerProtocolFd);
        }
        const auto line = parse_command_line(std::vector<std::string>(argv + 1, argv + argc));
        std::fputs(line.out.c_str(), stdout);
        std::fputs(line.err.c_str(), stderr);
        if (!line.command) {
            return line.exit_code;
        }
        return std::visit([](const auto& command) { return dispatch(command); }, *line.command);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "distilld: %s\n", error.what());
        return distilld::kFailed;
    }
}
