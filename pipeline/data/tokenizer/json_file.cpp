#include "pipeline/data/tokenizer/json_file.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/files.hpp"
#include "base/json_text.hpp"

namespace distilld {

Result<boost::json::value> read_json_file(const std::filesystem::path& file) {
    constexpr std::uint64_t kMaxBytes = 256U << 20;
    constexpr std::size_t kMaxDepth = 32;
    const Result<std::string> text = read_text_file(file, kMaxBytes);
    if (!text) {
        return text.error();
    }
    auto content = parse_json_text(*text, kMaxDepth);
    if (!content) {
        return invalid_input(file.string() + ": is not valid JSON: " + content.error().reason);
    }
    return std::move(*content);
}

}  // namespace distilld
