#include "pipeline/data/tokenizer/added_tokens.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <utility>

#include "base/utf8.hpp"
#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

// \w of Rust's regex, which `tokenizers` applies to the neighbours of a token: it includes joiners.
constexpr std::string_view kWord = R"([\w\x{200C}\x{200D}])";

std::string_view first_character(std::string_view text) {
    return text.empty() ? text : text.substr(0, std::max<std::size_t>(utf8_sequence(text), 1));
}

std::string_view last_character(std::string_view text) {
    std::size_t begin = text.size();
    while (begin > 0 && (static_cast<unsigned char>(text[--begin]) & 0xC0U) == 0x80U) {
    }
    return text.substr(begin);
}

constexpr std::int32_t kNone = -1;

std::uint64_t edge(std::uint32_t node, char byte) {
    return (std::uint64_t{node} << 8U) | static_cast<unsigned char>(byte);
}

bool is(const Pattern& pattern, std::string_view character) {
    std::vector<TextSpan> matches;
    pattern.find_all(character, matches);
    return !matches.empty();
}

Result<AddedToken> read_token(const json::value& entry) {
    const Result<std::string> content = text_of(entry, "content");
    if (!content) {
        return content.error();
    }
    const Result<std::int64_t> id = number_of(entry, "id", -1);
    if (!id || *id < 0 || *id >= kMaxSpecialId) {
        return not_understood("added_tokens entry", entry);
    }
    AddedToken token;
    token.content = *content;
    token.id = static_cast<std::int32_t>(*id);
    const std::pair<std::string_view, bool*> flags[] = {{"special", &token.special},
                                                        {"single_word", &token.single_word},
                                                        {"lstrip", &token.takes_left},
                                                        {"rstrip", &token.takes_right},
                                                        {"normalized", &token.normalized}};
    for (const auto& [name, flag] : flags) {
        const Result<bool> read = flag_of(entry, name, false);
        if (!read) {
            return read.error();
        }
        *flag = *read;
    }
    return token;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized, const Normalizer& normalizer)
    : word_(*make_regex(kWord)), space_(*make_regex("\\s")), token_of_node_(1, kNone) {
    for (const AddedToken& token : tokens) {
        if (token.normalized != normalized) {
            continue;
        }
        std::string content = token.content;
        if (normalized && normalizer) {
            const std::size_t max_bytes = max_grown_bytes(content.size());
            content = normalizer(std::move(content), max_bytes);
        }
        insert(content, static_cast<std::int32_t>(tokens_.size()));
        tokens_.push_back(token);
    }
}

void AddedTokenFinder::split(std::string_view text, std::vector<AddedTokenPiece>& pieces) const {
    pieces.clear();
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
        const auto [number, size] =
            begins_[static_cast<unsigned char>(text[at])] ? longest(text.substr(at)) : std::pair(kNone, std::size_t{1});
        if (number == kNone) {
            ++at;
            continue;
        }
        const AddedToken& token = tokens_[static_cast<std::size_t>(number)];
        const TextSpan found{at, at + size};
        at = found.end;
        if (token.single_word && !stands_alone(text, found)) {
            continue;
        }
        const TextSpan taken = with_white_space(text, found, token, done);
        if (done < taken.begin) {
            pieces.push_back({{done, taken.begin}, std::nullopt});
        }
        pieces.push_back({taken, token.id});
        done = taken.end;
        at = std::max(at, done);
    }
    if (done < text.size()) {
        pieces.push_back({{done, text.size()}, std::nullopt});
    }
}

void AddedTokenFinder::insert(std::string_view content, std::int32_t number) {
    if (content.empty()) {
        return;
    }
    begins_[static_cast<unsigned char>(content.front())] = true;
    std::uint32_t node = 0;
    for (const char byte : content) {
        const auto [found, made] =
            edges_.try_emplace(edge(node, byte), static_cast<std::uint32_t>(token_of_node_.size()));
        if (made) {
            token_of_node_.push_back(kNone);
        }
        node = found->second;
    }
    // Of two tokens with the same text, the first counts.
    if (token_of_node_[node] == kNone) {
        token_of_node_[node] = number;
    }
}

/// The longest token that `text` begins with, and its size.
std::pair<std::int32_t, std::size_t> AddedTokenFinder::longest(std::string_view text) const {
    std::pair<std::int32_t, std::size_t> best(kNone, 1);
    std::uint32_t node = 0;
    for (std::size_t size = 0; size < text.size(); ++size) {
        const auto found = edges_.find(edge(node, text[size]));
        if (found == edges_.end()) {
            break;
        }
        node = found->second;
        if (token_of_node_[node] != kNone) {
            best = {token_of_node_[node], size + 1};
        }
    }
    return best;
}

bool AddedTokenFinder::stands_alone(std::string_view text, TextSpan found) const {
    return !is(*word_, last_character(text.substr(0, found.begin))) &&
           !is(*word_, first_character(text.substr(found.end)));
}

TextSpan AddedTokenFinder::with_white_space(std::string_view text, TextSpan found, const AddedToken& token,
                                            std::size_t done) const {
    while (token.takes_left && found.begin > done) {
        const std::string_view before = last_character(text.substr(done, found.begin - done));
        if (!is(*space_, before)) {
            break;
        }
        found.begin -= before.size();
    }
    while (token.takes_right && found.end < text.size()) {
        const std::string_view behind = first_character(text.substr(found.end));
        if (!is(*space_, behind)) {
            break;
        }
        found.end += behind.size();
    }
    return found;
}

Result<std::vector<AddedToken>> read_added_tokens(const json::value& listed) {
    if (!listed.is_array()) {
        return not_understood("added_tokens", listed);
    }
    std::vector<AddedToken> tokens;
    for (const json::value& entry : listed.get_array()) {
        Result<AddedToken> token = read_token(entry);
        if (!token) {
            return token.error();
        }
        tokens.push_back(std::move(*token));
    }
    return tokens;
}

}  // namespace distilld
