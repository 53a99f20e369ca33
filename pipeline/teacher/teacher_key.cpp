#include "pipeline/teacher/teacher_key.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/files/open_file.hpp"
#include "pipeline/core/teacher_key_root.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxKeyBytes = std::size_t{64} << 10U;

Result<std::string> one_line(std::string key, const std::string& what) {
    if (key.empty()) {
        return invalid_input(what + " is empty");
    }
    if (key.find_first_of("\r\n") != std::string::npos) {
        return invalid_input(what + " has more than one line");
    }
    return key;
}

Result<std::string> read_variable(const std::string& variable, const std::string& section) {
    const char* key = std::getenv(variable.c_str());
    if (key == nullptr || *key == '\0') {
        return invalid_input(section + "/api_key_env: the environment variable " + variable + " is not set");
    }
    return one_line(key, section + "/api_key_env: the value of " + variable);
}

Result<std::string> read_file(const std::string& name, const std::string& section) {
    const std::string what = section + "/api_key_file: " + name;
    const char* root = std::getenv(kKeyRootVariable);
    if (root == nullptr || *root == '\0') {
        return invalid_input(what + " cannot be read: there is no folder of keys (distilld serve --key-root DIR, or " +
                             kKeyRootVariable + ")");
    }
    std::error_code failed;
    const fs::path folder = fs::canonical(root, failed);
    const fs::path file = failed ? fs::path() : fs::canonical(folder / name, failed);
    if (failed) {
        return invalid_input(what + " is not in the folder of keys: " + failed.message());
    }
    const FileRule below_it{.roots = {folder.string()}};
    const Result<Descriptor> opened = open_file(file, O_RDONLY, 0, &below_it);
    if (!opened && (opened.error().kind == ErrorKind::path_not_allowed || !fs::is_regular_file(file, failed))) {
        return invalid_input(what + " is not a file below the folder of keys");
    }
    std::string key(kMaxKeyBytes + 1, '\0');
    const ssize_t count = opened ? ::read(opened->get(), key.data(), key.size()) : -1;
    if (count < 0) {
        return invalid_input(what + " cannot be read");
    }
    key.resize(static_cast<std::size_t>(count));
    if (key.size() > kMaxKeyBytes) {
        return invalid_input(what + " is too large for a key");
    }
    for (const char end : {'\n', '\r'}) {
        if (key.ends_with(end)) {
            key.pop_back();
        }
    }
    return one_line(std::move(key), what);
}

}  // namespace

Result<std::string> read_bearer(const std::string& variable, const std::string& file, const std::string& section) {
    if (!file.empty()) {
        return read_file(file, section);
    }
    return variable.empty() ? Result<std::string>(std::string()) : read_variable(variable, section);
}

}  // namespace distilld
