#include "pipeline/data/tokenizer/token_decoder.hpp"

#include <boost/json/array.hpp>
#include <charconv>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/utf8.hpp"
#include "pipeline/data/tokenizer/bpe.hpp"
#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

using Tokens = std::vector<std::string>;

using Made = Result<TokenDecoder>;

/// `callable` takes the tokens, and `max_bytes` if it needs that.
template <class Callable>
Made step(Callable callable) {
    if constexpr (std::is_invocable_v<const Callable&, Tokens&>) {
        return TokenDecoder([callable = std::move(callable)](Tokens& tokens, std::size_t) { callable(tokens); });
    } else {
        return TokenDecoder(std::move(callable));
    }
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

/// Decodes adjacent byte tokens together. If they are not valid UTF-8, each becomes U+FFFD.
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
    Result<Replacement> read = replacement_of(component);
    if (!read) {
        return read.error();
    }
    return step([replacement = std::move(*read)](Tokens& tokens, std::size_t max_bytes) {
        for (std::string& token : tokens) {
            token = replace_all(token, *replacement.pattern, replacement.content, max_bytes);
            max_bytes -= token.size();
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
    const Result<std::string> replacement = space_of("decoder", component);
    if (!replacement) {
        return replacement.error();
    }
    const Result<bool> add_prefix = flag_of(component, "add_prefix_space", true);
    if (!add_prefix) {
        return add_prefix.error();
    }
    const json::value* scheme = member_of(object, "prepend_scheme");
    const bool prepended = scheme != nullptr ? *scheme != "never" : *add_prefix;
    return step([space = make_literal(*replacement), prepended](Tokens& tokens) {
        for (std::size_t number = 0; number < tokens.size(); ++number) {
            const std::string_view content = number == 0 && prepended ? "" : " ";
            tokens[number] = replace_all(tokens[number], *space, content, tokens[number].size());
        }
    });
}

Made make_sequence(const json::value& component) {
    auto read = read_listed("decoder", "decoders", make_token_decoder, component);
    if (!read) {
        return read.error();
    }
    return step([steps = std::move(*read)](Tokens& tokens, std::size_t max_bytes) {
        for (const TokenDecoder& one : steps) {
            one(tokens, max_bytes);
        }
    });
}

constexpr ComponentRow<TokenDecoder> kTokenDecoders[] = {
    {"Sequence", make_sequence},
    {"ByteLevel", [](const json::value&) { return step(byte_level); }},
    {"ByteFallback", [](const json::value&) { return step(byte_fallback); }},
    {"Fuse", [](const json::value&) { return step(fuse); }},
    {"Replace", make_replace},
    {"Strip", make_strip},
    {"Metaspace", make_metaspace},
};

}  // namespace

Result<TokenDecoder> make_token_decoder(const json::value& component) {
    return read_component<TokenDecoder>("decoder", kTokenDecoders, component);
}

}  // namespace distilld
