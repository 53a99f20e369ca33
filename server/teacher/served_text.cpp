#include "server/teacher/served_text.hpp"

#include <system_error>
#include <utility>

#include "base/files/files.hpp"
#include "base/json_text.hpp"

namespace distilld::teacher {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::uint64_t kMaxConfigBytes = 16U << 20U;
constexpr std::size_t kMaxConfigDepth = 32;

bool is_there(const fs::path& file) {
    std::error_code ignored;
    return fs::exists(file, ignored);
}

Result<json::object> read_config(const fs::path& file) {
    const Result<std::string> text = read_text_file(file, kMaxConfigBytes);
    if (!text) {
        return text.error();
    }
    auto config = parse_json_text(*text, kMaxConfigDepth);
    if (!config) {
        return invalid_input(file.string() + " is not JSON: " + config.error().reason);
    }
    if (!config->is_object()) {
        return invalid_input(file.string() + " is not a JSON object");
    }
    return std::move(config->get_object());
}

/// One template, or a list of {name, template} with one named "default".
std::optional<std::string> template_of(const json::object& config) {
    const json::value* value = config.if_contains("chat_template");
    if (const json::array* list = value != nullptr ? value->if_array() : nullptr) {
        value = nullptr;
        for (const json::value& one : *list) {
            const json::object* named = one.if_object();
            const json::value* name = named != nullptr ? named->if_contains("name") : nullptr;
            if (name != nullptr && *name == "default") {
                value = named->if_contains("template");
            }
        }
    }
    return value != nullptr && value->is_string() ? std::optional<std::string>(value->get_string()) : std::nullopt;
}

}  // namespace

ServedText load_served_text(const fs::path& folder) {
    ServedText text;
    auto tokenizer = load_tokenizer(folder);
    if (tokenizer) {
        text.tokenizer = std::move(*tokenizer);
    } else {
        text.warnings.push_back(tokenizer.error().message + ": prompts are token ids");
    }
    const fs::path config = folder / "tokenizer_config.json";
    if (is_there(config)) {
        Result<json::object> read = read_config(config);
        if (read) {
            text.config = std::move(*read);
            text.chat_template = template_of(text.config);
        } else {
            text.warnings.push_back(read.error().message);
        }
    }
    const fs::path jinja = folder / "chat_template.jinja";
    if (is_there(jinja)) {
        Result<std::string> read = read_text_file(jinja, kMaxConfigBytes);
        if (read) {
            text.chat_template = std::move(*read);
        } else {
            text.warnings.push_back(read.error().message);
        }
    }
    return text;
}

}  // namespace distilld::teacher
