#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string_view>

#include "api/job_spec_json.hpp"
#include "server/cli/commands.hpp"

namespace distilld::cli {

Result<std::string> read_spec_text(const std::string& file) {
    std::ifstream opened;
    if (file != "-") {
        std::error_code ec;
        if (std::filesystem::is_directory(file, ec)) {
            return invalid_input(file + " is a folder, not a job spec");
        }
        opened.open(file, std::ios::binary);
        if (!opened) {
            return invalid_input("cannot read " + file + ": " + std::strerror(errno));
        }
    }
    std::istream& in = file == "-" ? std::cin : opened;
    std::string text(api::kSpecSizeLimit + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (in.bad()) {
        return io_error("cannot read " + file);
    }
    if (text.size() > api::kSpecSizeLimit) {
        return invalid_input(file + " is larger than " + std::to_string(api::kSpecSizeLimit) + " bytes");
    }
    return text;
}

Result<void> write_file(const std::filesystem::path& file, const std::string& text) {
    const std::string temporary = file.string() + ".tmp-" + std::to_string(::getpid());
    const auto failed = [&](int fd) {
        const int number = errno;
        if (fd >= 0) {
            ::close(fd);
            ::unlink(temporary.c_str());
        }
        return io_error("cannot write " + file.string() + ": " + std::strerror(number));
    };
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return failed(fd);
    }
    std::string_view rest = text;
    while (!rest.empty()) {
        const ssize_t written = ::write(fd, rest.data(), rest.size());
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return failed(fd);
        }
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
    if (::fsync(fd) != 0 || ::rename(temporary.c_str(), file.c_str()) != 0) {
        return failed(fd);
    }
    ::close(fd);
    return {};
}

}  // namespace distilld::cli
