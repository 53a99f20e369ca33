#include "pipeline/data/tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

using Made = Result<Normalizer>;

/// `callable` takes the text, and `max_bytes` if it needs that.
template <class Callable>
Made step(Callable callable) {
    return Normalizer([callable = std::move(callable)](std::string text, std::size_t max_bytes) {
        std::string made;
        if constexpr (std::is_invocable_v<const Callable&, std::string>) {
            made = callable(std::move(text));
        } else {
            made = callable(std::move(text), max_bytes);
        }
        check_grown_bytes(made.size(), max_bytes);
        return made;
    });
}

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string mapped(const std::string& text, int options) {
    utf8proc_uint8_t* made = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &made, static_cast<utf8proc_option_t>(options));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
    if (size < 0) {
        throw std::runtime_error(std::string("a tokenizer's normalizer: ") + utf8proc_errmsg(size));
    }
    return {reinterpret_cast<const char*>(made), static_cast<std::size_t>(size)};
}

/// ASCII is already in every normal form.
Made normal_form(int options) {
    return step([options](std::string text) { return is_ascii(text) ? text : mapped(text, options); });
}

constexpr int kCanonical = UTF8PROC_STABLE;
constexpr int kCompatible = UTF8PROC_STABLE | UTF8PROC_COMPAT;

void append(std::string& text, utf8proc_int32_t code_point) {
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(code_point, bytes);
    text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

/// Maps each character as Rust's char::to_lowercase does: only one character becomes two.
std::string lowercase(const std::string& text) {
    constexpr utf8proc_int32_t kCapitalIWithDot = 0x130;
    constexpr std::string_view kItsLowercase = "i\xCC\x87";
    std::string made;
    made.reserve(text.size());
    const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    for (auto left = static_cast<utf8proc_ssize_t>(text.size()); left > 0;) {
        utf8proc_int32_t code_point = 0;
        const utf8proc_ssize_t size = utf8proc_iterate(at, left, &code_point);
        if (size < 1) {
            throw std::runtime_error("the input of a tokenizer's normalizer is not UTF-8");
        }
        if (code_point == kCapitalIWithDot) {
            made += kItsLowercase;
        } else {
            append(made, utf8proc_tolower(code_point));
        }
        at += size;
        left -= size;
    }
    return made;
}

Made make_sequence(const json::value& component) {
    auto steps = read_listed("normalizer", "normalizers", make_normalizer, component);
    if (!steps) {
        return steps.error();
    }
    return step([steps = std::move(*steps)](std::string text, std::size_t max_bytes) {
        for (const Normalizer& one : steps) {
            text = one(std::move(text), max_bytes);
        }
        return text;
    });
}

Made make_prepend(const json::value& component) {
    Result<std::string> prefix = text_of(component, "prepend");
    if (!prefix) {
        return prefix.error();
    }
    return step([prefix = std::move(*prefix)](std::string text) { return text.empty() ? text : prefix + text; });
}

Made make_replace(const json::value& component) {
    Result<Replacement> read = replacement_of(component);
    if (!read) {
        return read.error();
    }
    return step([replacement = std::move(*read)](const std::string& text, std::size_t max_bytes) {
        return replace_all(text, *replacement.pattern, replacement.content, max_bytes);
    });
}

/// Removes all matches of the expressions.
Made make_removal(const std::vector<std::string>& expressions) {
    std::vector<std::shared_ptr<const Pattern>> patterns;
    for (const std::string& expression : expressions) {
        Result<std::shared_ptr<const Pattern>> pattern = make_regex(expression);
        if (!pattern) {
            return pattern.error();
        }
        patterns.push_back(std::move(*pattern));
    }
    return step([patterns = std::move(patterns)](std::string text) {
        for (const auto& pattern : patterns) {
            text = replace_all(text, *pattern, "", text.size());
        }
        return text;
    });
}

Made make_strip(const json::value& component) {
    const Result<bool> left = flag_of(component, "strip_left", true);
    const Result<bool> right = flag_of(component, "strip_right", true);
    if (!left || !right) {
        return !left ? left.error() : right.error();
    }
    std::vector<std::string> expressions;
    if (*left) {
        expressions.emplace_back("\\A\\s+");
    }
    if (*right) {
        expressions.emplace_back("\\s+\\z");
    }
    return make_removal(expressions);
}

constexpr ComponentRow<Normalizer> kNormalizers[] = {
    {"Sequence", make_sequence},
    {"NFC", [](const json::value&) { return normal_form(kCanonical | UTF8PROC_COMPOSE); }},
    {"NFD", [](const json::value&) { return normal_form(kCanonical | UTF8PROC_DECOMPOSE); }},
    {"NFKC", [](const json::value&) { return normal_form(kCompatible | UTF8PROC_COMPOSE); }},
    {"NFKD", [](const json::value&) { return normal_form(kCompatible | UTF8PROC_DECOMPOSE); }},
    {"Lowercase", [](const json::value&) { return step(lowercase); }},
    {"Prepend", make_prepend},
    {"Replace", make_replace},
    {"Strip", make_strip},
    {"StripAccents", [](const json::value&) { return make_removal({"\\p{M}"}); }},
};

}  // namespace

Result<Normalizer> make_normalizer(const json::value& component) {
    return read_component<Normalizer>("normalizer", kNormalizers, component);
}

}  // namespace distilld
