#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "server/cli/commands.hpp"
#include "server/supervisor/worker_environment.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld::cli {

/// Becomes the worker: signals, exit code and process id are the worker's own.
int execute(const TeacherCommand& command) {
    for (const auto& setting : worker_environment()) {
        const auto equals = setting.find('=');
        ::setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
    std::string program = default_worker_program().string();
    std::vector<std::string> arguments = teacher_arguments(command.options);
    std::vector<char*> pointers{program.data()};
    for (auto& argument : arguments) {
        pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    ::execv(program.c_str(), pointers.data());
    std::fprintf(stderr, "distilld: cannot start %s: %s\n", program.c_str(), std::strerror(errno));
    return kFailed;
}

}  // namespace distilld::cli
