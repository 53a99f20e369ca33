#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "api/job_spec_json.hpp"
#include "api/spec_comments.hpp"
#include "server/cli/commands.hpp"

namespace distilld::cli {

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

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
    return api::without_comments(text);
}

}  // namespace distilld::cli
