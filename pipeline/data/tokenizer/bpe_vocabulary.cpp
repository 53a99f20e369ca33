#include "pipeline/data/tokenizer/bpe_vocabulary.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <optional>
#include <utility>

#include "pipeline/data/tokenizer/bpe.hpp"
#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMaxTokens = 1 << 24;

Result<void> read_vocabulary(const json::value& model, BpeVocabulary& parts) {
    const json::value* found = member_of(model.get_object(), "vocab");
    const json::object* vocabulary = found != nullptr ? found->if_object() : nullptr;
    if (vocabulary == nullptr) {
        return invalid_input("has no \"model.vocab\" object");
    }
    std::int64_t end = 0;
    for (const auto& [token, id] : *vocabulary) {
        if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= kMaxTokens) {
            return not_understood("model.vocab entry", json::object{{token, id}});
        }
        end = std::max(end, id.get_int64() + 1);
    }
    parts.tokens.resize(static_cast<std::size_t>(end));
    for (const auto& [token, id] : *vocabulary) {
        std::string& place = parts.tokens[static_cast<std::size_t>(id.get_int64())];
        if (!place.empty()) {
            return invalid_input("model.vocab gives the id " + std::to_string(id.get_int64()) + " to two tokens");
        }
        place = token;
    }
    for (const auto& [token, id] : *vocabulary) {
        const std::string& place = parts.tokens[static_cast<std::size_t>(id.get_int64())];
        parts.ids.emplace(place, static_cast<std::int32_t>(id.get_int64()));
    }
    return {};
}

void fill_texts(BpeVocabulary& parts) {
    if (!parts.byte_level) {
        parts.texts = parts.ids;
        return;
    }
    parts.bytes.resize(parts.tokens.size());
    parts.of_byte.fill(kNoToken);
    for (std::size_t id = 0; id < parts.tokens.size(); ++id) {
        std::optional<std::string> bytes = bytes_of_byte_level(parts.tokens[id]);
        if (!bytes || bytes->empty()) {
            continue;  // no text can become it
        }
        parts.bytes[id] = std::move(*bytes);
        parts.texts.emplace(parts.bytes[id], static_cast<std::int32_t>(id));
        if (parts.bytes[id].size() == 1) {
            parts.of_byte[static_cast<unsigned char>(parts.bytes[id].front())] = static_cast<std::int32_t>(id);
        }
    }
}

void fill_fallback(BpeVocabulary& parts) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    parts.fallback.fill(kNoToken);
    for (std::size_t byte = 0; byte < parts.fallback.size(); ++byte) {
        const std::string token = {'<', '0', 'x', kDigits[byte >> 4U], kDigits[byte & 15U], '>'};
        const auto found = parts.ids.find(token);
        parts.fallback[byte] = found != parts.ids.end() ? found->second : kNoToken;
    }
}

/// "left right" or ["left", "right"].
std::optional<std::pair<std::string_view, std::string_view>> sides_of(const json::value& merge) {
    if (const json::array* both = merge.if_array()) {
        if (both->size() == 2 && (*both)[0].is_string() && (*both)[1].is_string()) {
            return std::pair<std::string_view, std::string_view>((*both)[0].get_string(), (*both)[1].get_string());
        }
        return std::nullopt;
    }
    if (!merge.is_string()) {
        return std::nullopt;
    }
    const std::string_view text = merge.get_string();
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return std::nullopt;
    }
    return std::pair(text.substr(0, space), text.substr(space + 1));
}

Result<void> read_merges(const json::value& model, BpeVocabulary& parts) {
    const json::value* merges = member_of(model.get_object(), "merges");
    if (merges == nullptr) {
        return {};
    }
    if (!merges->is_array() || merges->get_array().size() > static_cast<std::size_t>(kMaxTokens)) {
        return not_understood("model.merges", *merges);
    }
    parts.merges.reserve(merges->get_array().size());
    std::uint32_t rank = 0;
    std::string joined;
    for (const json::value& merge : merges->get_array()) {
        const auto sides = sides_of(merge);
        if (!sides) {
            return not_understood("model.merges entry", merge);
        }
        joined.assign(sides->first).append(sides->second);
        const auto left = parts.ids.find(sides->first);
        const auto right = parts.ids.find(sides->second);
        const auto both = parts.ids.find(joined);
        if (left == parts.ids.end() || right == parts.ids.end() || both == parts.ids.end()) {
            return not_understood("model.merges names a token that is not in model.vocab:", merge);
        }
        parts.merges[BpeVocabulary::pair_of(left->second, right->second)] = {rank++, both->second};
    }
    return {};
}

Result<void> read_options(const json::value& model, BpeVocabulary& parts) {
    for (const std::string_view name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
        const json::value* found = member_of(model.get_object(), name);
        const bool empty = found == nullptr || *found == "" || (found->is_double() && found->get_double() == 0.0);
        if (!empty) {
            return not_understood("model." + std::string(name), *found);
        }
    }
    const Result<bool> fuse = flag_of(model, "fuse_unk", false);
    const Result<bool> fallback = flag_of(model, "byte_fallback", false);
    const Result<bool> ignore = flag_of(model, "ignore_merges", false);
    for (const Result<bool>* flag : {&fuse, &fallback, &ignore}) {
        if (!*flag) {
            return flag->error();
        }
    }
    parts.fuse_unknown = *fuse;
    parts.has_fallback = *fallback;
    parts.ignore_merges = *ignore;
    if (member_of(model.get_object(), "unk_token") != nullptr) {
        const Result<std::string> unknown = text_of(model, "unk_token");
        if (!unknown) {
            return unknown.error();
        }
        const auto found = parts.ids.find(*unknown);
        if (found == parts.ids.end()) {
            return invalid_input("model.unk_token \"" + *unknown + "\" is not in model.vocab");
        }
        parts.unknown = found->second;
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<const BpeVocabulary>> read_bpe_vocabulary(const json::value& model, bool byte_level) {
    auto parts = std::make_unique<BpeVocabulary>();
    parts->byte_level = byte_level;
    Result<void> read = read_vocabulary(model, *parts);
    read = read ? read_options(model, *parts) : read;
    read = read ? read_merges(model, *parts) : read;
    if (!read) {
        return read.error();
    }
    fill_texts(*parts);
    fill_fallback(*parts);
    return std::unique_ptr<const BpeVocabulary>(std::move(parts));
}

}  // namespace distilld
