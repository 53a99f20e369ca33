#pragma once

#include <sys/types.h>

#include <string>

#include "tests/support/temporary_folder.hpp"

namespace distilld::test {

/// Whether the process still executes. One that has ended does not, even if nobody has reaped it.
[[nodiscard]] inline bool is_running(pid_t pid) {
    const std::string stat = read_bytes("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t name_end = stat.rfind(')');
    return name_end != std::string::npos && stat.substr(name_end, 3) != ") Z" && stat.substr(name_end, 3) != ") X";
}

}  // namespace distilld::test
