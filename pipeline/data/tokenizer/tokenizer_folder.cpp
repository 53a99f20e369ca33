#include <boost/json/value.hpp>
#include <system_error>
#include <utility>

#include "pipeline/data/tokenizer/json_file.hpp"
#include "pipeline/data/tokenizer/special_token_files.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"
#include "pipeline/data/tokenizer/tokenizer_json.hpp"

namespace distilld {

namespace fs = std::filesystem;

namespace {

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const boost::json::value& content,
                                                  const std::optional<std::int32_t>& end_of_text) {
    try {
        return make_json_tokenizer(content, end_of_text);
    } catch (const ErrorException& of_added_token) {  // its own normalizer makes too much of one
        return of_added_token.error();
    }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const fs::path& folder) {
    const fs::path file = folder / "tokenizer.json";
    std::error_code code;
    const bool there = fs::exists(file, code);
    if (code) {
        return io_error(file.string() + ": cannot be examined: " + code.message());
    }
    if (!there) {
        return std::unique_ptr<Tokenizer>();
    }
    const Result<boost::json::value> content = read_json_file(file);
    if (!content) {
        return content.error();
    }
    const Result<std::optional<SpecialTokens>> special = read_special_tokens(folder);
    if (!special) {
        return special.error();
    }
    std::optional<std::int32_t> end_of_text;
    if (*special && !(*special)->eos.empty()) {
        end_of_text = static_cast<std::int32_t>((*special)->eos.front());
    }
    Result<std::unique_ptr<Tokenizer>> made = make_tokenizer(*content, end_of_text);
    if (!made) {
        return Error{made.error().kind, file.string() + ": " + made.error().message};
    }
    return made;
}

}  // namespace distilld
