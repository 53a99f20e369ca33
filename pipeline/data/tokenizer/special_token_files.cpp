#include "pipeline/data/tokenizer/special_token_files.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/ascii.hpp"
#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

Result<json::object> read_object(const fs::path& file) {
    Result<json::value> value = read_json_file(file);
    if (!value) {
        return value.error();
    }
    if (!value->is_object()) {
        return invalid_input(file.string() + ": is not a JSON object");
    }
    return std::move(value->get_object());
}

/// "…" or {"content": "…"}; empty if there is none.
std::string_view token_text(const json::object& config, std::string_view name) {
    const json::value* value = config.if_contains(name);
    if (value != nullptr && value->is_object()) {
        value = value->get_object().if_contains("content");
    }
    return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

/// tokenizer_config.json: {"added_tokens_decoder": {"256": {"content": "…"}}}
std::optional<std::int64_t> id_in_decoder(const json::object& config, std::string_view token) {
    const json::value* decoder = config.if_contains("added_tokens_decoder");
    if (decoder == nullptr || !decoder->is_object()) {
        return std::nullopt;
    }
    for (const auto& [id, entry] : decoder->get_object()) {
        if (entry.is_object() && token_text(entry.get_object(), "content") == token) {
            return number_from<std::uint32_t>(id);
        }
    }
    return std::nullopt;
}

/// tokenizer.json: {"added_tokens": [{"id": 256, "content": "…"}], "model": {"vocab": {"…": 0}}}
std::optional<std::int64_t> id_in_tokenizer(const json::object& tokenizer, std::string_view token) {
    const json::value* added = tokenizer.if_contains("added_tokens");
    for (const json::value& entry : added != nullptr && added->is_array() ? added->get_array() : json::array()) {
        const json::object* object = entry.if_object();
        const json::value* id = object != nullptr ? object->if_contains("id") : nullptr;
        if (id != nullptr && id->is_int64() && token_text(*object, "content") == token) {
            return id->get_int64();
        }
    }
    const json::value* model = tokenizer.if_contains("model");
    const json::value* vocab =
        model != nullptr && model->is_object() ? model->get_object().if_contains("vocab") : nullptr;
    const json::value* id = vocab != nullptr && vocab->is_object() ? vocab->get_object().if_contains(token) : nullptr;
    return id != nullptr && id->is_int64() ? std::optional(id->get_int64()) : std::nullopt;
}

}  // namespace

Result<std::optional<SpecialTokens>> read_special_tokens(const fs::path& folder) {
    std::error_code ignored;
    if (!fs::exists(folder / "tokenizer_config.json", ignored)) {
        return std::optional<SpecialTokens>();
    }
    const Result<json::object> config = read_object(folder / "tokenizer_config.json");
    if (!config) {
        return config.error();
    }
    json::object tokenizer;
    if (fs::exists(folder / "tokenizer.json", ignored)) {
        Result<json::object> read = read_object(folder / "tokenizer.json");
        if (!read) {
            return read.error();
        }
        tokenizer = std::move(*read);
    }
    const auto id_of = [&](std::string_view name) -> std::optional<std::int64_t> {
        const std::string_view token = token_text(*config, name);
        if (token.empty()) {
            return std::nullopt;
        }
        const auto id = id_in_decoder(*config, token);
        return id ? id : id_in_tokenizer(tokenizer, token);
    };
    SpecialTokens special{id_of("bos_token"), {}, id_of("pad_token")};
    if (const auto eos = id_of("eos_token")) {
        special.eos.push_back(*eos);
    }
    return std::optional(std::move(special));
}

}  // namespace distilld
