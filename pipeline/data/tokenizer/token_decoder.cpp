#include "pipeline/data/tokenizer/token_decoder.hpp"

#include <boost/json/array.hpp>
#include <charconv>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/utf8.hpp"
#include "pipeline/data/tokenizer/bpe.hpp"
#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

using Tokens = std::vector<std::string>;

class Step final : public TokenDecoder {
  public:
    explicit Step(std::function<void(Tokens&)> step) : step_(std::move(step)) {}
    void apply(Tokens& tokens) const override { step_(tokens); }

  private:
    std::function<void(Tokens&)> step_;
};

using Made = Result<std::unique_ptr<TokenDecoder>>;

template <class Callable>
Made step(Callable callable) {
    return std::unique_ptr<TokenDecoder>(std::make_unique<Step>(std::move(callable)));
}

void byte_level(Tokens& tokens) {
    for (std::string& token : tokens) {
        if (std::optional<std::string> bytes = bytes_of_byte_level(token)) {
            token = std::move(*bytes);
        }
    }
}

void fuse(Tokens& tokens) {
    std::string whole;
    for (const std::string& token : tokens) {
        whole += token;
    }
    tokens.assign(1, std::move(whole));
}

/// "<0x41>"
std::optional<char> byte_of(std::string_view token) {
    unsigned value = 0;
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') {
        return std::nullopt;
    }
    const char* end = token.data() + 5;
    const auto read = std::from_chars(token.data() + 3, end, value, 16);
    return read.ec == std::errc() && read.ptr == end ? std::optional(static_cast<char>(value)) : std::nullopt;
}

bool is_utf8(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::size_t size = utf8_sequence(bytes);
        if (size == 0) {
            return false;
        }
        bytes.remove_prefix(size);
    }
    return true;
}

/// Bytes side by side become text together; each of those that form none becomes U+FFFD.
void byte_fallback(Tokens& tokens) {
    Tokens made;
    std::string bytes;
    const auto flush = [&] {
        if (bytes.empty()) {
            return;
        }
        if (is_utf8(bytes)) {
            made.push_back(bytes);
        } else {
            made.insert(made.end(), bytes.size(), "\xEF\xBF\xBD");
        }
        bytes.clear();
    };
    for (std::string& token : tokens) {
        if (const std::optional<char> byte = byte_of(token)) {
            bytes.push_back(*byte);
            continue;
        }
        flush();
        made.push_back(std::move(token));
    }
    flush();
    tokens = std::move(made);
}

Made make_replace(const json::value& component) {
    Result<std::shared_ptr<const Pattern>> pattern = pattern_of(component);
    if (!pattern) {
        return pattern.error();
    }
    Result<std::string> content = text_of(component, "content");
    if (!content) {
        return content.error();
    }
    return step([pattern = std::move(*pattern), content = std::move(*content)](Tokens& tokens) {
        for (std::string& token : tokens) {
            token = replace_all(token, *pattern, content);
        }
    });
}

Made make_strip(const json::value& component) {
    const Result<std::string> content = text_of(component, "content");
    const Result<std::int64_t> start = number_of(component, "start", 0);
    const Result<std::int64_t> stop = number_of(component, "stop", 0);
    if (!content || !start || !stop || content->empty()) {
        return not_understood("decoder", component);
    }
    return step([content = *content, start = *start, stop = *stop](Tokens& tokens) {
        for (std::string& token : tokens) {
            std::string_view left = token;
            for (std::int64_t cut = 0; cut < start && left.starts_with(content); ++cut) {
                left.remove_prefix(content.size());
            }
            for (std::int64_t cut = 0; cut < stop && left.ends_with(content); ++cut) {
                left.remove_suffix(content.size());
            }
            token = std::string(left);
        }
    });
}

Made make_metaspace(const json::value& component) {
    const json::object& object = component.get_object();
    std::string replacement = "\xE2\x96\x81";
    if (member_of(object, "replacement") != nullptr) {
        Result<std::string> given = text_of(component, "replacement");
        if (!given || given->empty()) {
            return not_understood("decoder", component);
        }
        replacement = std::move(*given);
    }
    const Result<bool> add_prefix = flag_of(component, "add_prefix_space", true);
    if (!add_prefix) {
        return add_prefix.error();
    }
    const json::value* scheme = member_of(object, "prepend_scheme");
    const bool prepended = scheme != nullptr ? *scheme != "never" : *add_prefix;
    return step([space = make_literal(replacement), prepended](Tokens& tokens) {
        for (std::size_t number = 0; number < tokens.size(); ++number) {
            tokens[number] = replace_all(tokens[number], *space, number == 0 && prepended ? "" : " ");
        }
    });
}

Made make_sequence(const json::value& component) {
    const json::value* listed = member_of(component.get_object(), "decoders");
    if (listed == nullptr || !listed->is_array()) {
        return not_understood("decoder", component);
    }
    const auto steps = std::make_shared<std::vector<std::unique_ptr<TokenDecoder>>>();
    for (const json::value& one : listed->get_array()) {
        Made made = make_token_decoder(one);
        if (!made) {
            return made;
        }
        steps->push_back(std::move(*made));
    }
    return step([steps](Tokens& tokens) {
        for (const auto& one : *steps) {
            one->apply(tokens);
        }
    });
}

struct TokenDecoderRow {
    std::string_view type;
    Made (*make)(const json::value&);
};

constexpr TokenDecoderRow kTokenDecoders[] = {
    {"Sequence", make_sequence},
    {"ByteLevel", [](const json::value&) { return step(byte_level); }},
    {"ByteFallback", [](const json::value&) { return step(byte_fallback); }},
    {"Fuse", [](const json::value&) { return step(fuse); }},
    {"Replace", make_replace},
    {"Strip", make_strip},
    {"Metaspace", make_metaspace},
};

}  // namespace

Result<std::unique_ptr<TokenDecoder>> make_token_decoder(const json::value& component) {
    const std::string_view type = type_of(component);
    for (const TokenDecoderRow& row : kTokenDecoders) {
        if (row.type == type) {
            return row.make(component);
        }
    }
    return not_understood("decoder", component);
}

}  // namespace distilld
