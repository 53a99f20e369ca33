#include "pipeline/data/tokenizer_choice.hpp"

#include <boost/json/value.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/files.hpp"
#include "base/json_text.hpp"
#include "pipeline/data/byte_tokenizer.hpp"

namespace distilld {

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr std::uint64_t kMaxFileBytes = 256U << 20;
constexpr std::size_t kMaxDepth = 32;
constexpr std::string_view kPointer = "/student/tokenizer: ";

/// Files by which a folder shows that it has a tokenizer.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json",
                                           "merges.txt",     "vocab.txt",       "tekken.json"};

std::string tokenizer_file_in(const fs::path& folder) {
    std::error_code ignored;
    for (const char* name : kTokenizerFiles) {
        if (fs::exists(folder / name, ignored)) {
            return name;
        }
    }
    return {};
}

std::string advice() {
    return "give student.tokenizer a folder with a tokenizer.json in the byte tokenizer's form, or the data as "
           "ready-made {\"input_ids\"}";
}

Result<json::object> read_object(const fs::path& file) {
    const Result<std::string> text = read_text_file(file, kMaxFileBytes);
    if (!text) {
        return text.error();
    }
    auto value = parse_json_text(*text, kMaxDepth);
    if (!value || !value->is_object()) {
        return invalid_input(file.string() + ": is not a JSON object");
    }
    return std::move(value->get_object());
}

/// "…" or {"content": "…"}; empty when there is none.
std::string_view token_text(const json::object& config, std::string_view name) {
    const json::value* value = config.if_contains(name);
    if (value != nullptr && value->is_object()) {
        value = value->get_object().if_contains("content");
    }
    return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

std::optional<std::int64_t> number_of(std::string_view text) {
    std::int64_t number = 0;
    for (const char digit : text) {
        if (digit < '0' || digit > '9' || number > (std::int64_t{1} << 31)) {
            return std::nullopt;
        }
        number = number * 10 + (digit - '0');
    }
    return text.empty() ? std::nullopt : std::optional(number);
}

/// tokenizer_config.json: {"added_tokens_decoder": {"256": {"content": "…"}}}
std::optional<std::int64_t> id_in_decoder(const json::object& config, std::string_view token) {
    const json::value* decoder = config.if_contains("added_tokens_decoder");
    if (decoder == nullptr || !decoder->is_object()) {
        return std::nullopt;
    }
    for (const auto& [id, entry] : decoder->get_object()) {
        if (entry.is_object() && token_text(entry.get_object(), "content") == token) {
            return number_of(id);
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

/// What the folder has, into `choice`; `own`: it is the student's.
Result<void> take_folder(const fs::path& folder, bool own, TokenizerChoice& choice) {
    choice.folder = folder;
    choice.of_the_model = own;
    Result<std::unique_ptr<Tokenizer>> loaded = load_tokenizer(folder);
    if (!loaded) {
        choice.refusal = std::string(kPointer) + loaded.error().message + "; " + advice();
    } else if (*loaded == nullptr) {
        choice.refusal = std::string(kPointer) + folder.string() + " has a " + tokenizer_file_in(folder) +
                         " and no tokenizer.json; " + advice();
    } else {
        choice.tokenizer = std::move(*loaded);
    }
    if (own && choice.tokenizer == nullptr) {
        return {};  // its config.json knows its own special tokens
    }
    Result<std::optional<SpecialTokens>> special = read_special_tokens(folder);
    if (!special) {
        return invalid_input(std::string(kPointer) + special.error().message);
    }
    choice.special = std::move(*special);
    if (!choice.special && choice.tokenizer != nullptr) {
        choice.special = SpecialTokens{std::nullopt, {kByteEndOfText}, std::nullopt};
    }
    return {};
}

std::string size_text(const Tokenizer& tokenizer) {
    return "byte tokenizer, " + std::to_string(tokenizer.vocabulary_size()) + " tokens";
}

}  // namespace

std::string TokenizerChoice::description(bool read_text) const {
    if (read_text && tokenizer != nullptr) {
        return folder.empty() ? size_text(*tokenizer) : folder.string() + " (" + size_text(*tokenizer) + ")";
    }
    return folder.empty() ? "none: the data has ids"
                          : "none: the data has ids; the export takes the files in " + folder.string();
}

Result<TokenizerChoice> choose_tokenizer(const TokenizerWish& wish) {
    TokenizerChoice choice;
    Result<void> taken;
    if (!wish.named.empty()) {
        if (tokenizer_file_in(wish.named).empty()) {
            return invalid_input(std::string(kPointer) + wish.named.string() +
                                 " is not a folder with a tokenizer.json");
        }
        taken = take_folder(wish.named, false, choice);
    } else if (!wish.model.empty() && !tokenizer_file_in(wish.model).empty()) {
        taken = take_folder(wish.model, true, choice);
    } else if (wish.vocabulary_size >= kByteVocabularySize && wish.vocabulary_size <= kMaxByteVocabulary) {
        choice.tokenizer = make_byte_tokenizer();
        choice.special = SpecialTokens{std::nullopt, {kByteEndOfText}, std::nullopt};
    } else {
        choice.refusal = std::string(kPointer) + "there is none, and the student's vocabulary of " +
                         std::to_string(wish.vocabulary_size) + " is not that of the byte tokenizer, " +
                         std::to_string(kByteVocabularySize) + "; " + advice();
    }
    if (!taken) {
        return taken.error();
    }
    return choice;
}

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
