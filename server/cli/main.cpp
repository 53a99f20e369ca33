// distilld: control plane and command line. Does not link libtorch; what needs it runs in distilld-worker.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "server/cli/commands.hpp"

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
