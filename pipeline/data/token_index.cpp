#include "pipeline/data/token_index.hpp"

#include <boost/json/object.hpp>
#include <span>
#include <string_view>

#include "base/crc32c.hpp"
#include "base/files.hpp"
#include "base/json_fields.hpp"
#include "base/json_text.hpp"

namespace distilld {

namespace {

constexpr std::uint64_t kMaxIndexBytes = 1U << 20;
constexpr std::size_t kMaxDepth = 8;

std::string sum_of(std::string_view line) {
    return std::to_string(crc32c(std::as_bytes(std::span(line.data(), line.size()))));
}

}  // namespace

std::string index_text(const TokenIndex& index) {
    const std::string line = to_text(write_fields(index));
    return line + "\n" + sum_of(line) + "\n";
}

Result<TokenIndex> read_index(const std::filesystem::path& file) {
    const Result<std::string> text = read_text_file(file, kMaxIndexBytes);
    if (!text) {
        return text.error();
    }
    const std::string_view line = std::string_view(*text).substr(0, text->find('\n'));
    if (*text != std::string(line) + "\n" + sum_of(line) + "\n") {
        return io_error(file.string() + ": is damaged");
    }
    const auto json = parse_json_text(line, kMaxDepth);
    TokenIndex index;
    if (!json || !json->is_object()) {
        return io_error(file.string() + ": is not a JSON object");
    }
    if (const Result<void> read = read_fields(json->get_object(), index, {file.string(), ""}); !read) {
        return read.error();
    }
    return index;
}

}  // namespace distilld
