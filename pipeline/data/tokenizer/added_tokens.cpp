#include "pipeline/data/tokenizer/added_tokens.hpp"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <utility>

#include "base/utf8.hpp"
#include "pipeline/data/tokenizer/component.hpp"
#include "pipeline/data/tokenizer/text_growth.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMaxId = 1 << 24;

// \w of Rust's regex, by which `tokenizers` looks at the neighbours of a token: joiners count.
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

class TrieFinder final : public AddedTokenFinder {
  public:
    TrieFinder(std::vector<AddedToken> tokens, const Normalizer* normalizer)
        : tokens_(std::move(tokens)), word_(*make_regex(kWord)), space_(*make_regex("\\s")) {
        for (std::size_t number = 0; number < tokens_.size(); ++number) {
            std::string content = tokens_[number].content;
            if (tokens_[number].normalized && normalizer != nullptr) {
                const std::size_t max_bytes = max_grown_bytes(content.size());
                content = normalizer->apply(std::move(content), max_bytes);
            }
            insert(content, static_cast<std::int32_t>(number));
        }
    }

    void split(std::string_view text, std::vector<AddedTokenPiece>& pieces) const override {
        pieces.clear();
        std::size_t done = 0;
        for (std::size_t at = 0; at < text.size();) {
            const auto [number, size] = begins_[static_cast<unsigned char>(text[at])]
                                            ? longest(text.substr(at))
                                            : std::pair(kNone, std::size_t{1});
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

  private:
    static constexpr std::int32_t kNone = -1;

    void insert(std::string_view content, std::int32_t number) {
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
        // Of two with the same text the first one counts.
        if (token_of_node_[node] == kNone) {
            token_of_node_[node] = number;
        }
    }

    static std::uint64_t edge(std::uint32_t node, char byte) {
        return (std::uint64_t{node} << 8U) | static_cast<unsigned char>(byte);
    }

    /// The longest token that `text` begins with, and its size.
    [[nodiscard]] std::pair<std::int32_t, std::size_t> longest(std::string_view text) const {
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

    static bool is(const Pattern& pattern, std::string_view character) {
        std::vector<TextSpan> matches;
        pattern.find_all(character, matches);
        return !matches.empty();
    }

    [[nodiscard]] bool stands_alone(std::string_view text, TextSpan found) const {
        return !is(*word_, last_character(text.substr(0, found.begin))) &&
               !is(*word_, first_character(text.substr(found.end)));
    }

    [[nodiscard]] TextSpan with_white_space(std::string_view text, TextSpan found, const AddedToken& token,
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

    std::vector<AddedToken> tokens_;
    std::shared_ptr<const Pattern> word_;
    std::shared_ptr<const Pattern> space_;
    std::array<bool, 256> begins_{};
    std::vector<std::int32_t> token_of_node_ = std::vector<std::int32_t>(1, kNone);
    boost::unordered_flat_map<std::uint64_t, std::uint32_t> edges_;
};

Result<AddedToken> read_token(const json::value& entry) {
    const Result<std::string> content = text_of(entry, "content");
    if (!content) {
        return content.error();
    }
    const Result<std::int64_t> id = number_of(entry, "id", -1);
    if (!id || *id < 0 || *id >= kMaxId) {
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

std::unique_ptr<AddedTokenFinder> make_added_token_finder(const std::vector<AddedToken>& tokens, bool normalized,
                                                          const Normalizer* normalizer) {
    std::vector<AddedToken> chosen;
    std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(chosen),
                 [normalized](const AddedToken& token) { return token.normalized == normalized; });
    return std::make_unique<TrieFinder>(std::move(chosen), normalizer);
}

}  // namespace distilld
