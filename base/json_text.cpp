#include "base/json_text.hpp"

#include <algorithm>
#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parser.hpp>
#include <boost/json/serialize.hpp>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/utf8.hpp"

namespace distilld {
namespace {

boost::json::parse_options options_of(std::size_t max_depth) {
    boost::json::parse_options options;
    options.max_depth = max_depth;
    // The fast mode is off by a few units in the last place; a spec must not change when it is read and written again.
    options.numbers = boost::json::number_precision::precise;
    return options;
}

/// Parser events; only the keys matter: boost::json::value silently keeps the last of two equal keys.
class KeyWatcher {
  public:
    static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
    static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
    static constexpr std::size_t max_key_size = std::numeric_limits<std::size_t>::max();
    static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();

    using Ec = boost::system::error_code;
    using Sv = boost::json::string_view;

    bool on_document_begin(Ec&) { return true; }
    bool on_document_end(Ec&) { return true; }
    bool on_object_begin(Ec&) {
        enter(true);
        return true;
    }
    bool on_object_end(std::size_t, Ec&) {
        levels_.pop_back();
        return true;
    }
    bool on_array_begin(Ec&) {
        enter(false);
        return true;
    }
    bool on_array_end(std::size_t, Ec&) {
        levels_.pop_back();
        return true;
    }
    bool on_key_part(Sv part, std::size_t, Ec&) {
        key_.append(part.data(), part.size());
        return true;
    }
    bool on_key(Sv part, std::size_t, Ec&) {
        key_.append(part.data(), part.size());
        auto& level = levels_.back();
        level.token = key_;
        if (!level.keys.insert(key_).second) {
            duplicates_.push_back(pointer());
        }
        key_.clear();
        return true;
    }
    bool on_string_part(Sv, std::size_t, Ec&) { return true; }
    bool on_string(Sv, std::size_t, Ec&) { return scalar(); }
    bool on_number_part(Sv, Ec&) { return true; }
    bool on_int64(std::int64_t, Sv, Ec&) { return scalar(); }
    bool on_uint64(std::uint64_t, Sv, Ec&) { return scalar(); }
    bool on_double(double, Sv, Ec&) { return scalar(); }
    bool on_bool(bool, Ec&) { return scalar(); }
    bool on_null(Ec&) { return scalar(); }
    bool on_comment_part(Sv, Ec&) { return true; }
    bool on_comment(Sv, Ec&) { return true; }

    [[nodiscard]] std::vector<std::string> take() { return std::move(duplicates_); }

  private:
    struct Level {
        bool object = false;
        std::size_t next_index = 0;  ///< for an array
        std::string token;           ///< current position in this level
        std::set<std::string> keys;
    };

    // A value begins: in an array, it is the next element.
    bool scalar() {
        if (!levels_.empty() && !levels_.back().object) {
            levels_.back().token = std::to_string(levels_.back().next_index++);
        }
        return true;
    }
    void enter(bool object) {
        scalar();
        levels_.push_back(Level{object, 0, {}, {}});
    }
    [[nodiscard]] std::string pointer() const {
        std::string result;
        for (const auto& level : levels_) {
            result += "/" + escape_pointer_token(level.token);
        }
        return result;
    }

    std::vector<Level> levels_;
    std::string key_;
    std::vector<std::string> duplicates_;
};

std::string place_of(std::string_view text, std::size_t offset) {
    const auto before = text.substr(0, std::min(offset, text.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const auto line_start = before.rfind('\n');
    const auto column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
    return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

/// The most frequent cause of a syntax error at `offset`.
std::string hint_of(std::string_view text, std::size_t offset) {
    constexpr std::string_view kBlanks = " \t\r\n";
    const std::size_t next = text.find_first_not_of(kBlanks, offset);
    const std::size_t last = next == 0 ? next : text.find_last_not_of(kBlanks, next - 1);
    if (next == std::string_view::npos || last == std::string_view::npos || last == next) {
        return "";
    }
    const auto is_in = [](char c, std::string_view set) { return set.find(c) != std::string_view::npos; };
    if (text[last] == ',' && is_in(text[next], "]}")) {
        return ": remove the comma in front of " + std::string(1, text[next]);
    }
    const bool value_ends = is_in(text[last], "\"]}") || std::isalnum(static_cast<unsigned char>(text[last])) != 0;
    if (!value_ends || !is_in(text[next], "\"[{")) {
        return "";
    }
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(last), '\n');
    const bool same_line = text.substr(last, next - last).find('\n') == std::string_view::npos;
    return same_line ? ": a comma or a colon is missing in front of it"
                     : ": line " + std::to_string(line) + " lacks a comma at its end";
}

class TextWriter {
  public:
    void write(const boost::json::value& value) {
        switch (value.kind()) {
            case boost::json::kind::double_:
                text_ += number_text(value.get_double());
                break;
            case boost::json::kind::array:
                write(value.get_array());
                break;
            case boost::json::kind::object:
                write(value.get_object());
                break;
            case boost::json::kind::string:
                write(std::string_view(value.get_string()));
                break;
            default:
                text_ += boost::json::serialize(value);
        }
    }

    [[nodiscard]] std::string take() { return std::move(text_); }

  private:
    void write(const boost::json::array& array) {
        char separator = '[';
        for (const auto& element : array) {
            text_ += std::exchange(separator, ',');
            write(element);
        }
        text_ += array.empty() ? "[]" : "]";
    }
    void write(const boost::json::object& object) {
        char separator = '{';
        for (const auto& member : object) {
            text_ += std::exchange(separator, ',');
            write(std::string_view(member.key()));
            text_ += ':';
            write(member.value());
        }
        text_ += object.empty() ? "{}" : "}";
    }
    void write(std::string_view text) {
        text_ += is_utf8(text) ? boost::json::serialize(boost::json::string_view(text))
                               : boost::json::serialize(to_valid_utf8(text));
    }

    std::string text_;
};

}  // namespace

boost::system::result<boost::json::value, JsonTextError> parse_json_text(std::string_view text, std::size_t max_depth) {
    boost::json::parser parser({}, options_of(max_depth));
    boost::system::error_code ec;
    const auto consumed = parser.write_some(text.data(), text.size(), ec);
    if (!ec) {
        const auto rest = text.substr(consumed);
        if (const auto extra = rest.find_first_not_of(" \t\r\n"); extra != std::string_view::npos) {
            return JsonTextError{consumed + extra,
                                 "text after the end of the document, " + place_of(text, consumed + extra)};
        }
    }
    if (ec) {
        std::string what = ec.message();
        const std::string hint = ec == boost::json::error::syntax ? hint_of(text, consumed) : std::string();
        if (ec == boost::json::error::incomplete) {
            what = "the text ends too early";
        }
        if (ec == boost::json::error::too_deep) {
            what = "nested deeper than " + std::to_string(max_depth) + " levels";
        }
        return JsonTextError{consumed, what + ", " + place_of(text, consumed) + hint};
    }
    return parser.release();
}

std::vector<std::string> duplicate_keys(std::string_view text, std::size_t max_depth) {
    boost::json::basic_parser<KeyWatcher> parser(options_of(max_depth));
    boost::system::error_code ec;
    parser.write_some(false, text.data(), text.size(), ec);
    return parser.handler().take();
}

std::string escape_pointer_token(std::string_view token) {
    std::string result;
    for (const char c : token) {
        if (c == '~') {
            result += "~0";
        } else if (c == '/') {
            result += "~1";
        } else {
            result += c;
        }
    }
    return result;
}

Result<std::vector<std::string>> split_pointer(std::string_view pointer) {
    std::vector<std::string> tokens;
    if (pointer.empty()) {
        return tokens;
    }
    if (pointer.front() != '/') {
        return invalid_input("'" + std::string(pointer) + "' is not a JSON pointer: it must begin with '/'");
    }
    std::string token;
    for (std::size_t i = 1; i < pointer.size(); ++i) {
        const char c = pointer[i];
        if (c == '/') {
            tokens.push_back(std::move(token));
            token.clear();
        } else if (c == '~') {
            const char next = i + 1 < pointer.size() ? pointer[i + 1] : '\0';
            if (next != '0' && next != '1') {
                return invalid_input("'" + std::string(pointer) + "' is not a JSON pointer: '~' must be ~0 or ~1");
            }
            token += next == '0' ? '~' : '/';
            ++i;
        } else {
            token += c;
        }
    }
    tokens.push_back(std::move(token));
    return tokens;
}

std::string kind_name(const boost::json::value& value) {
    switch (value.kind()) {
        case boost::json::kind::null:
            return "null";
        case boost::json::kind::bool_:
            return "a boolean";
        case boost::json::kind::int64:
        case boost::json::kind::uint64:
        case boost::json::kind::double_:
            return "a number";
        case boost::json::kind::string:
            return "a string";
        case boost::json::kind::array:
            return "an array";
        case boost::json::kind::object:
            return "an object";
    }
    return "something else";
}

std::string to_text(const boost::json::value& value) {
    TextWriter writer;
    writer.write(value);
    return writer.take();
}

std::string number_text(double number) {
    if (!std::isfinite(number)) {
        return "null";
    }
    constexpr double kMinFixed = 1e-7;
    constexpr double kMaxFixed = 1e17;
    const double magnitude = std::abs(number);
    const bool fixed = magnitude == 0 || (magnitude >= kMinFixed && magnitude < kMaxFixed);
    std::array<char, 64> buffer{};
    const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                                       fixed ? std::chars_format::fixed : std::chars_format::scientific);
    std::string text(buffer.data(), written.ptr);
    if (fixed) {
        return text;
    }
    // to_chars() writes 1e+20 and 1e-08: drops the plus and the leading zeros.
    const std::size_t exponent = text.find('e') + 1;
    if (text[exponent] == '+') {
        text.erase(exponent, 1);
    }
    const std::size_t digits = exponent + (text[exponent] == '-' ? 1 : 0);
    while (text[digits] == '0') {
        text.erase(digits, 1);
    }
    return text;
}

}  // namespace distilld
