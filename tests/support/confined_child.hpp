#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <string>

#include "base/files/open_file.hpp"

namespace distilld::test {

/// Runs `what` in a child process that is confined by `rule`, for a process is confined for good. Its text, cut at 4
/// KiB.
inline std::string in_confined_child(const FileRule& rule, const std::function<std::string()>& what) {
    int ends[2];
    if (::pipe(ends) != 0) {
        return "pipe failed";
    }
    const pid_t child = ::fork();
    if (child == 0) {
        std::string said;
        try {
            confine_files(rule);
            said = what();
        } catch (const std::exception& error) {
            said = std::string("thrown: ") + error.what();
        }
        constexpr std::size_t kMaxText = 4096;
        said.resize(std::min(said.size(), kMaxText));
        ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    std::string said;
    char byte = 0;
    while (::read(ends[0], &byte, 1) == 1) {
        said += byte;
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    return status == 0 ? said : "the child ended with status " + std::to_string(status) + ": " + said;
}

/// "done", or the kind and the message of the error.
template <class T>
std::string outcome_of(const Result<T>& result) {
    return result ? "done" : std::string(to_string(result.error().kind)) + ": " + result.error().message;
}

}  // namespace distilld::test
