#include "server/cli/jobs/api_key.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/files/files.hpp"

namespace distilld::cli {
namespace {

constexpr std::uint64_t kMaxFileBytes = 4096;

/// Rejects what a header cannot hold: a key with a line break would be two headers.
Result<std::string> checked(std::string key, const std::string& where) {
    while (key.ends_with('\n') || key.ends_with('\r')) {
        key.pop_back();
    }
    if (key.empty()) {
        return invalid_input(where + " is empty");
    }
    if (!std::ranges::all_of(key, [](char c) { return c > ' ' && c < '\x7f'; })) {
        return invalid_input(where + " is not a key: it has blanks, line breaks or other invalid characters");
    }
    return key;
}

}  // namespace

Result<std::string> read_api_key(const std::string& file) {
    if (file.empty()) {
        const char* value = std::getenv(kApiKeyVariable);
        return value == nullptr || *value == '\0' ? Result<std::string>(std::string())
                                                  : checked(value, kApiKeyVariable);
    }
    auto text = read_text_file(file, kMaxFileBytes);
    if (!text) {
        return invalid_input("--api-key-file: " + text.error().message);
    }
    return checked(std::move(*text), "--api-key-file: " + file);
}

}  // namespace distilld::cli
