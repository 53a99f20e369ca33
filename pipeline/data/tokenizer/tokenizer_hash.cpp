#include "pipeline/data/tokenizer/tokenizer_hash.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "base/json_members.hpp"
#include "base/sha256.hpp"
#include "pipeline/data/tokenizer/byte_tokenizer.hpp"
#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

using Tokens = std::map<std::uint32_t, std::string_view>;

bool add(Tokens& tokens, const json::value* id, const json::value* token) {
    const auto number = id != nullptr ? JsonMembers::whole_number<std::uint32_t>(*id) : std::nullopt;
    const json::string* text = token != nullptr ? token->if_string() : nullptr;
    if (!number || text == nullptr) {
        return false;
    }
    tokens[*number] = *text;
    return true;
}

/// {"token": id, …}, or for a Unigram model [["token", score], …] in the order of the ids.
bool add_vocabulary(Tokens& tokens, const json::value& vocabulary) {
    if (const json::object* by_token = vocabulary.if_object()) {
        for (const auto& member : *by_token) {
            const auto id = JsonMembers::whole_number<std::uint32_t>(member.value());
            if (!id) {
                return false;
            }
            tokens[*id] = member.key();
        }
        return true;
    }
    const json::array* in_order = vocabulary.if_array();
    for (std::size_t id = 0; in_order != nullptr && id < in_order->size(); ++id) {
        const json::array* entry = (*in_order)[id].if_array();
        const json::value number(static_cast<std::uint64_t>(id));
        if (entry == nullptr || entry->empty() || !add(tokens, &number, &entry->front())) {
            return false;
        }
    }
    return in_order != nullptr;
}

std::optional<std::string> hash_of(const json::value& content) {
    const json::object* root = content.if_object();
    const json::value* model = root != nullptr ? member_of(*root, "model") : nullptr;
    const json::object* fields = model != nullptr ? model->if_object() : nullptr;
    const json::value* vocabulary = fields != nullptr ? fields->if_contains("vocab") : nullptr;
    Tokens tokens;
    if (vocabulary == nullptr || !add_vocabulary(tokens, *vocabulary)) {
        return std::nullopt;
    }
    const json::value* added = member_of(*root, "added_tokens");
    const json::array* listed = added != nullptr ? added->if_array() : nullptr;
    for (std::size_t i = 0; listed != nullptr && i < listed->size(); ++i) {
        const json::object* token = (*listed)[i].if_object();
        if (token == nullptr || !add(tokens, token->if_contains("id"), token->if_contains("content"))) {
            return std::nullopt;
        }
    }
    Sha256 hash;
    for (const auto& [id, token] : tokens) {
        const std::string head = std::to_string(id) + " " + std::to_string(token.size()) + " ";
        hash.add(std::as_bytes(std::span(head)));
        hash.add(std::as_bytes(std::span(token)));
    }
    return hash.hex();
}

}  // namespace

Result<std::string> tokenizer_hash_of(const std::filesystem::path& folder) {
    const std::filesystem::path file = folder / "tokenizer.json";
    std::error_code ignored;
    if (folder.empty() || !std::filesystem::exists(file, ignored)) {
        return std::string();
    }
    const Result<json::value> content = read_json_file(file);
    if (!content) {
        return content.error();
    }
    const std::optional<std::string> hash = hash_of(*content);
    if (!hash) {
        return invalid_input(file.string() + ": has no vocabulary of ids and tokens");
    }
    return *hash;
}

bool is_byte_tokenizer(const std::filesystem::path& folder) {
    const Result<json::value> content = read_json_file(folder / "tokenizer.json");
    return content && *content == byte_tokenizer_json();
}

std::string byte_tokenizer_hash() {
    return hash_of(byte_tokenizer_json()).value_or("");
}

}  // namespace distilld
